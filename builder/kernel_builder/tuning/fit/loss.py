"""The numbers that the fit minimises: rows (points) x columns (configurations)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kernel_builder.tuning.matrix import Cell, Matrix, Point
from kernelhub.formats.tree import Config, Literal

from .arrays import Floats
from .near import nearness
from .terms import kinds

FAILURE = 1e6
"""Loss of one failing cell, whatever its point's weight. It is above any sum of slowdowns, so
sums of losses compare by the number of failures first and by slowdown second."""

UNKNOWN_SLOWDOWN = 4.0
"""What a cell that was never measured is taken for: worse than any configuration worth shipping,
better than one that is known to fail."""

_ABOVE_GOAL = 4.0  # extra charge for each unit of log slowdown above the goal
_LAUNCH_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")  # these size no block
_LEAST_SHARE = 0.01  # of a point's own weight, below which another is too far away to count
_MOST_BLURRED = 3.0  # a disaster at another point counts for no more than this
_MOST_LEARNED = 0.8  # log slowdown, 2.2 times: about what a forest has to tell apart
_TIE = 2.0  # times that differ by less than this many times their errors are equal


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Points with equal features are one row: no tree can tell them apart.

    Attributes:
        features: one mapping per row, of what a tree may test on every launch, see `terms.kinds`.
        loss: `loss[row][column]`, weighted; weights are scaled to a mean of 1 per point.
        pruned: per row the columns that the author's pruning drops there. Their loss is `FAILURE`,
            which counts only where a leaf has nothing else: dispatch takes the next in rank.
        blocks: per column the whole numbers among the configuration's own parameters, of which
            any may be the size of a block.
        near: how alike each pair of rows is, see `nearness`.
        weight: per row, what a slowdown was multiplied with for its loss.
        goal: slowdown above which more was charged.
    """

    features: tuple[Mapping[str, Literal], ...]
    loss: tuple[tuple[float, ...], ...]
    pruned: tuple[frozenset[int], ...] = ()
    blocks: tuple[frozenset[int], ...] = ()
    near: tuple[tuple[float, ...], ...] = ()
    weight: tuple[float, ...] = ()
    goal: float = 1.0

    def only(self, columns: Sequence[int]) -> Rows:
        """All rows with these columns, which are numbered anew in this order."""
        number = {column: index for index, column in enumerate(columns)}
        return replace(
            self,
            loss=tuple(tuple(row[c] for c in columns) for row in self.loss),
            pruned=tuple(frozenset(number[c] for c in row if c in number) for row in self.pruned),
            blocks=tuple(self.blocks[c] for c in columns),
        )

    def without(self, left_out: frozenset[int]) -> Rows:
        """All rows but these."""
        kept = [i for i in range(len(self.features)) if i not in left_out]
        return replace(
            self,
            features=tuple(self.features[i] for i in kept),
            loss=tuple(self.loss[i] for i in kept),
            pruned=tuple(self.pruned[i] for i in kept),
            near=tuple(tuple(self.near[i][j] for j in kept) for i in kept),
            weight=tuple(self.weight[i] for i in kept),
        )


def blurred(rows: Rows, weight: float) -> Rows:
    """Each loss averaged with those of the same configuration on similar points.

    Single points are whimsical: a configuration may be lucky at one size and not at those around
    it, which are the ones that users will have. Failures and what is pruned stay as they are.

    Args:
        weight: of an equal point; it falls with the square of the nearness.
    """
    if weight <= 0:
        return rows
    loss = []
    for own, near in enumerate(rows.near):
        total, weights = list(rows.loss[own]), [1.0] * len(rows.loss[own])
        for other, alike in enumerate(near):
            share = weight * alike**2
            if other == own or share < _LEAST_SHARE:
                continue
            for column, value in enumerate(rows.loss[other]):
                if value < FAILURE / 2:
                    total[column] += share * min(value, _MOST_BLURRED)
                    weights[column] += share
        loss.append(
            tuple(
                value if value >= FAILURE / 2 else sum_ / count
                for value, sum_, count in zip(rows.loss[own], total, weights, strict=True)
            )
        )
    return replace(rows, loss=tuple(loss))


def make_rows(matrix: Matrix, goal: float) -> Rows:
    """Losses of every point that has at least one working configuration.

    A point on which nothing works cannot tell configurations apart; `evaluate` reports it.
    """
    points = [p for p in matrix.points if matrix.best(p) is not None]
    if not points:
        return Rows(features=(), loss=())
    testable = kinds([p.features for p in points])
    scale = len(points) / math.fsum(p.weight for p in points)
    merged: dict[tuple[tuple[str, Literal], ...], list[float]] = {}
    features: list[Mapping[str, Literal]] = []
    dropped: list[frozenset[int]] = []
    weights: dict[tuple[tuple[str, Literal], ...], float] = {}
    for point in points:
        key = tuple(sorted(point.features.items()))
        weights[key] = weights.get(key, 0.0) + point.weight * scale
        if key not in merged:
            merged[key] = [0.0] * len(matrix.configs)
            features.append({name: point.features[name] for name in testable})
            dropped.append(_pruned(matrix, point))
        row = merged[key]
        for column, value in enumerate(_losses(matrix, point, goal, point.weight * scale)):
            row[column] += value
    return Rows(
        features=tuple(features),
        loss=tuple(tuple(row) for row in merged.values()),
        pruned=tuple(dropped),
        blocks=tuple(map(_blocks, matrix.configs)),
        near=nearness(features),
        weight=tuple(weights.values()),
        goal=goal,
    )


def _pruned(matrix: Matrix, point: Point) -> frozenset[int]:
    cells = [matrix.cell(point, config) for config in matrix.configs]
    return frozenset(i for i, cell in enumerate(cells) if cell is not None and cell.pruned)


def _blocks(config: Config) -> frozenset[int]:
    return frozenset(
        value
        for name, value in config.items()
        if type(value) is int and name not in _LAUNCH_OPTIONS
    )


def _losses(matrix: Matrix, point: Point, goal: float, weight: float) -> Sequence[float]:
    cells = [matrix.cell(point, config) for config in matrix.configs]
    fastest = matrix.best_cell(point)
    assert fastest is not None  # noqa: S101 - points on which nothing works are left out before
    return [_loss(cell, fastest, goal, weight) for cell in cells]


def _loss(cell: Cell | None, fastest: Cell, goal: float, weight: float) -> float:
    if cell is None:
        return weight * charge(UNKNOWN_SLOWDOWN, goal)
    if cell.ms is None or fastest.ms is None or cell.pruned:
        return FAILURE
    if cell.ms - fastest.ms <= _TIE * math.hypot(cell.error, fastest.error):
        return 0.0
    return weight * charge(max(1.0, cell.ms / fastest.ms), goal)


def charge(slowdown: float, goal: float) -> float:
    """Log slowdown, and more for what is above the goal, so that the worst case counts too."""
    return math.log(slowdown) + _ABOVE_GOAL * max(0.0, math.log(slowdown / goal))


def charged(logs: Floats, goal: float) -> Floats:
    """`charge` of each, of logarithms of slowdowns."""
    return logs + _ABOVE_GOAL * np.maximum(0.0, logs - math.log(goal))


def slowdowns(rows: Rows) -> Floats:
    """(rows, columns): logarithms of the slowdowns behind the losses, the inverse of `charged`.

    At most `_MOST_LEARNED`: how much worse than that does not matter, and a failure must not drown
    all else. Where several points are one row, that of their mean charge.
    """
    charges = np.array(rows.loss) / np.array(rows.weight)[:, None]
    limit = math.log(rows.goal)
    above = (charges + _ABOVE_GOAL * limit) / (1 + _ABOVE_GOAL)
    return np.minimum(np.where(charges <= limit, charges, above), _MOST_LEARNED)
