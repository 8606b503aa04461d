"""A forest of random trees: what each configuration costs between the measured points.

Extremely randomised trees (Geurts, Ernst and Wehenkel, 2006): every node draws one threshold for
each feature and takes the one that leaves least variance; leaves hold one row; the forest's answer
is the mean of its trees. Costs are whole numbers in here, and sums of them exact, so that every
machine grows the same forest, whatever the order of the rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .arrays import Floats, Indices, Truths

_STEPS = 10_000  # whole numbers to one unit of cost
_TREES = 100
_LEAF = -1


@dataclass(frozen=True, slots=True)
class _Tree:
    """Nodes in arrays, the root first; `feature` is `_LEAF` at a leaf, whose cost is `value`."""

    feature: Indices
    threshold: Floats
    yes: Indices
    no: Indices
    value: Floats

    def predict(self, x: Floats) -> Floats:
        node: Indices = np.zeros(len(x), np.int64)
        while (inner := np.flatnonzero(self.feature[node] != _LEAF)).size:
            at = node[inner]
            low = x[inner, self.feature[at]] <= self.threshold[at]
            node[inner] = np.where(low, self.yes[at], self.no[at])
        return self.value[node]


class Forest:
    """Fitted when made.

    Args:
        x: (rows, features), finite; at least one row.
        y: (rows, outputs), costs, told apart to 1 / `_STEPS`. Their squared sums have to fit 64
            bits: costs up to 1 do for a hundred thousand rows.
    """

    def __init__(self, x: Floats, y: Floats) -> None:
        whole = np.rint(y * _STEPS).astype(np.int64)
        random = np.random.default_rng(0)  # always the same forest
        self._trees = [_grow(x, whole, random) for _ in range(_TREES)]

    def predict(self, x: Floats) -> Floats:
        """(rows, outputs), costs."""
        total: Floats = np.sum([tree.predict(x) for tree in self._trees], axis=0)
        return total / (_TREES * _STEPS)


def _grow(x: Floats, y: Indices, random: np.random.Generator) -> _Tree:
    feature, threshold, yes, no = [_LEAF], [0.0], [0], [0]
    value = [np.rint(y.mean(axis=0))]
    waiting = [(0, np.arange(len(x)))]
    while waiting:
        node, rows = waiting.pop()
        split = _split(x[rows], y[rows], random)
        if split is None:
            continue
        feature[node], threshold[node], low = split
        for children, part in ((yes, rows[low]), (no, rows[~low])):
            children[node] = len(feature)
            waiting.append((len(feature), part))
            feature.append(_LEAF)
            threshold.append(0.0)
            yes.append(0)
            no.append(0)
            value.append(np.rint(y[part].mean(axis=0)))
    return _Tree(
        np.array(feature), np.array(threshold), np.array(yes), np.array(no), np.array(value)
    )


def _split(x: Floats, y: Indices, random: np.random.Generator) -> tuple[int, float, Truths] | None:
    """(feature, threshold, which rows are below), None where nothing is left to tell apart."""
    least, most = x.min(axis=0), x.max(axis=0)
    drawn = least + random.random(x.shape[1]) * (most - least)
    if (y == y[0]).all() or (least == most).all():
        return None
    low = x <= drawn
    count, total = low.sum(axis=0), y.sum(axis=0)
    below = low.T.astype(np.int64) @ y
    above = total - below
    with np.errstate(divide="ignore", invalid="ignore"):
        kept = (below**2).sum(axis=1) / count + (above**2).sum(axis=1) / (len(x) - count)
    # Equal partitions have equal scores, to the last bit; the first feature of them is taken.
    kept[(count == 0) | (count == len(x))] = -1.0
    best = int(kept.argmax())
    return (best, float(drawn[best]), low[:, best]) if kept[best] >= 0 else None
