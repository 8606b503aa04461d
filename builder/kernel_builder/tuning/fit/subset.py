"""At most k configurations for all rows: greedy by marginal gain, then swaps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_EPSILON = 1e-12
_Columns = Mapping[int, Sequence[float]]  # losses of each column, row by row


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
    by_column = {column: [row[column] for row in loss] for column in columns}
    covered = [float("inf")] * len(loss)
    chosen: list[int] = []
    while len(chosen) < min(limit, len(columns)):
        best, total = _best_addition(by_column, covered)
        if chosen and total >= sum(covered) - _EPSILON:
            break
        chosen = _swap(by_column, [*chosen, best])
        covered = _least(by_column, chosen, len(loss))
    return sorted(chosen)


def _least(by_column: _Columns, chosen: Sequence[int], rows: int) -> list[float]:
    """The least loss of the chosen columns on each row."""
    covered = [float("inf")] * rows
    for column in chosen:
        covered = list(map(min, covered, by_column[column]))
    return covered


def _best_addition(by_column: _Columns, covered: Sequence[float]) -> tuple[int, float]:
    best, best_total = next(iter(by_column)), float("inf")
    for column, values in by_column.items():
        total = sum(map(min, values, covered))
        if total < best_total - _EPSILON:
            best, best_total = column, total
    return best, best_total


def _swap(by_column: _Columns, chosen: list[int]) -> list[int]:
    """Replace one chosen column while that lowers the total."""
    rows = len(by_column[chosen[0]])
    current = sum(_least(by_column, chosen, rows))
    improved = True
    while improved:
        improved = False
        for position in range(len(chosen)):
            rest = chosen[:position] + chosen[position + 1 :]
            best, total = _best_addition(by_column, _least(by_column, rest, rows))
            if total < current - _EPSILON:
                chosen, current, improved = [*rest, best], total, True
    return chosen
