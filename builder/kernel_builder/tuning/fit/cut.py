"""Where to cut a sorted list of rows in two, each part with the choice that suits it best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

_EPSILON = 1e-9
_CUTS_OF_A_STRETCH = 2  # a stretch in the middle takes two cuts, so it has to gain twice as much

_Columns = Sequence[Sequence[float]]  # losses of each choice, in the order of the rows


@dataclass(frozen=True, slots=True)
class Cut:
    """A cut after one position of the order.

    Attributes:
        gain: by how much the loss falls with it (for a stretch: for each of its two cuts).
        position: the last below.
        choice_below: which of a row's losses is that of the choice below.
        choice_above: the same above.
    """

    gain: float
    position: int
    choice_below: int
    choice_above: int


def best_cut(
    values: Sequence[float], losses: Sequence[Sequence[float]], totals: Sequence[float]
) -> Cut | None:
    """The cut that gains most, None where all values are equal. Among equals the widest gap.

    A choice that suits a stretch in the middle alone gains nothing by one cut: both sides go on as
    before. So each end of the best stretch counts as a cut as well, with half its gain.

    Args:
        values: of each row, ascending.
        losses: of each row, for each choice.
        totals: sum of the losses over all rows.
    """
    gaps = [_gap(low, high) for low, high in pairwise(values)]
    columns = list(zip(*losses, strict=True))
    single = _single(columns, totals, gaps)
    if single is None:
        return None
    cuts = [single, *_stretches(columns, totals, gaps)]
    most = max(cut.gain for cut in cuts)
    return max(
        (cut for cut in cuts if cut.gain > most - _EPSILON), key=lambda cut: gaps[cut.position]
    )


def _gap(low: float, high: float) -> float:
    """How far apart two neighbours are, 0.0 for equal ones: by ratio, where there is one."""
    if low == high:
        return 0.0
    return high / low if low > 0 else high - low


def _single(columns: _Columns, totals: Sequence[float], gaps: Sequence[float]) -> Cut | None:
    below = [list(accumulate(column)) for column in columns]
    above = [[total - b for b in part] for part, total in zip(below, totals, strict=True)]
    least = [sum(pair) for pair in zip(_least(below), _least(above), strict=True)]
    possible = [position for position, gap in enumerate(gaps) if gap]
    if not possible:
        return None
    target = min(least[position] for position in possible) + _EPSILON
    position = max((p for p in possible if least[p] <= target), key=gaps.__getitem__)
    choices = range(len(columns))
    return Cut(
        min(totals) - least[position],
        position,
        min(choices, key=lambda choice: below[choice][position]),
        min(choices, key=lambda choice: above[choice][position]),
    )


def _least(columns: _Columns) -> Sequence[float]:
    return columns[0] if len(columns) == 1 else list(map(min, *columns))


def _stretches(columns: _Columns, totals: Sequence[float], gaps: Sequence[float]) -> list[Cut]:
    """Both ends of each stretch on which another choice gains most on the best for all rows."""
    usual = min(range(len(columns)), key=totals.__getitem__)
    cuts = []
    for other, column in enumerate(columns):
        saved = [a - b for a, b in zip(columns[usual], column, strict=True)]
        start, end, gain = _best_stretch(saved, gaps)
        if other != usual and start > 0 and end < len(saved):
            gain /= _CUTS_OF_A_STRETCH
            cuts += [Cut(gain, start - 1, usual, other), Cut(gain, end - 1, other, usual)]
    return cuts


def _best_stretch(saved: Sequence[float], gaps: Sequence[float]) -> tuple[int, int, float]:
    """(start, end, sum) of the stretch with the largest sum, as Kadane finds it, that begins and
    ends at a gap."""
    start, end, most = 0, 0, 0.0
    least, least_at = 0.0, 0
    for index, total in enumerate(accumulate(saved), start=1):
        if index == len(saved) or gaps[index - 1]:
            if total - least > most + _EPSILON:
                start, end, most = least_at, index, total - least
            if total < least:
                least, least_at = total, index
    return start, end, most
