"""At most k configurations for all rows: greedy by marginal gain, then swaps."""

from __future__ import annotations

from collections.abc import Sequence

_EPSILON = 1e-12


def useful_columns(loss: Sequence[Sequence[float]]) -> list[int]:
    """Columns that no other column beats or equals on every row; of equal ones the first."""
    columns = list(zip(*loss, strict=True))
    order = sorted(range(len(columns)), key=lambda c: (sum(columns[c]), c))
    kept: list[int] = []
    for candidate in order:
        mine = columns[candidate]
        if not any(all(a <= b for a, b in zip(columns[k], mine, strict=True)) for k in kept):
            kept.append(candidate)
    return sorted(kept)


def choose(loss: Sequence[Sequence[float]], columns: Sequence[int], limit: int) -> list[int]:
    """The columns that minimise the sum over rows of the least loss, as far as swaps find them.

    Args:
        loss: one sequence of losses per row.
        columns: the columns that may be chosen, in order of preference on ties.
        limit: most columns to choose, at least 1.

    Returns:
        Chosen columns, ascending. Fewer than `limit` where more would not help.
    """
    covered = [float("inf")] * len(loss)
    chosen: list[int] = []
    while len(chosen) < min(limit, len(columns)):
        best, total = _best_addition(loss, columns, covered)
        if chosen and total >= sum(covered) - _EPSILON:
            break
        chosen.append(best)
        covered = [min(c, row[best]) for c, row in zip(covered, loss, strict=True)]
        chosen = _swap(loss, columns, chosen)
        covered = [min(row[c] for c in chosen) for row in loss]
    return sorted(chosen)


def _best_addition(
    loss: Sequence[Sequence[float]], columns: Sequence[int], covered: Sequence[float]
) -> tuple[int, float]:
    best, best_total = columns[0], float("inf")
    for column in columns:
        total = 0.0
        for row, least in zip(loss, covered, strict=True):
            value = row[column]
            total += value if value < least else least
        if total < best_total - _EPSILON:
            best, best_total = column, total
    return best, best_total


def _swap(loss: Sequence[Sequence[float]], columns: Sequence[int], chosen: list[int]) -> list[int]:
    """Replace one chosen column while that lowers the total."""
    current = sum(min(row[c] for c in chosen) for row in loss)
    improved = True
    while improved:
        improved = False
        for position in range(len(chosen)):
            rest = chosen[:position] + chosen[position + 1 :]
            covered = [min((row[c] for c in rest), default=float("inf")) for row in loss]
            best, total = _best_addition(loss, columns, covered)
            if total < current - _EPSILON:
                chosen, current, improved = [*rest, best], total, True
    return chosen
