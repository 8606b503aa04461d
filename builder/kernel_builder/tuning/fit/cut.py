"""Where to cut a sorted list of rows in two, each part with the choice that suits it best."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .arrays import Floats, Indices

_EPSILON = 1e-9
_CUTS_OF_A_STRETCH = 2  # a stretch in the middle takes two cuts, so it has to gain twice as much


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


def best_cut(values: Floats, losses: Floats, totals: Floats) -> Cut | None:
    """The cut that gains most, None where all values are equal. Among equals the widest gap.

    A choice that suits a stretch in the middle alone gains nothing by one cut: both sides go on as
    before. So each end of the best stretch counts as a cut as well, with half its gain.

    Args:
        values: (rows,), ascending.
        losses: (rows, choices).
        totals: (choices,), sum of the losses over all rows.
    """
    gaps = _gaps(values)
    possible = np.flatnonzero(gaps)
    if not possible.size:
        return None
    cuts = [_single(losses, totals, gaps, possible), *_stretches(losses, totals, possible)]
    most = max(cut.gain for cut in cuts)
    return max(
        (cut for cut in cuts if cut.gain > most - _EPSILON), key=lambda cut: gaps[cut.position]
    )


def _gaps(values: Floats) -> Floats:
    """How far apart neighbours are, 0.0 for equal ones: by ratio, where there is one."""
    low, high = values[:-1], values[1:]
    apart = high - low
    positive = low > 0
    apart[positive] = high[positive] / low[positive]
    apart[low == high] = 0.0
    return apart


def _single(losses: Floats, totals: Floats, gaps: Floats, possible: Indices) -> Cut:
    below = np.cumsum(losses, axis=0)[possible]
    above = totals - below
    least = below.min(axis=1) + above.min(axis=1)
    equal = np.flatnonzero(least <= least.min() + _EPSILON)
    at = int(equal[gaps[possible[equal]].argmax()])
    return Cut(
        float(totals.min() - least[at]),
        int(possible[at]),
        int(below[at].argmin()),
        int(above[at].argmin()),
    )


def _stretches(losses: Floats, totals: Floats, possible: Indices) -> list[Cut]:
    """Both ends of each stretch on which another choice gains most on the best for all rows.

    The stretch with the largest sum, as Kadane finds it, that begins and ends at a gap.
    """
    usual, size = int(totals.argmin()), len(losses)
    edges = np.concatenate(([0], possible + 1, [size]))
    saved = np.zeros((size + 1, losses.shape[1]))
    np.cumsum(losses[:, [usual]] - losses, axis=0, out=saved[1:])
    saved = saved[edges]
    gains = saved[1:] - np.minimum.accumulate(saved, axis=0)[:-1]
    cuts = []
    for other, end in enumerate(gains.argmax(axis=0)):
        start = int(saved[: end + 1, other].argmin())
        if other != usual and start > 0 and edges[end + 1] < size and gains[end, other] > _EPSILON:
            gain = float(gains[end, other]) / _CUTS_OF_A_STRETCH
            cuts += [
                Cut(gain, int(edges[start]) - 1, usual, other),
                Cut(gain, int(edges[end + 1]) - 1, other, usual),
            ]
    return cuts
