"""A tree of one given complexity: its configurations, its splits and the ranking of its leaves."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .grow import Grower, Grown, among, cost, prune
from .loss import FAILURE, Rows
from .subset import choose, useful_columns


@dataclass(frozen=True, slots=True, kw_only=True)
class FitOptions:
    """What the author asks for.

    Attributes:
        max_configs: most configurations in the tree.
        max_slowdown: the goal; slowdown above it is charged five times.
        folds: most groups that cross-validation leaves out in turn.
    """

    max_configs: int = 8
    max_slowdown: float = 1.05
    folds: int = 12


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Complexity:
    """How complex a tree may be; what cross-validation chooses. Ordered from simple to complex.

    Attributes:
        configs: most configurations.
        compound: whether tests may use products and ratios.
        price: loss that each further leaf must save (about: log slowdown summed over points).
        blur: weight of similar points in the loss of each point, see `loss.blurred`; a share of it
            is the weight of points outside of a leaf in its ranking.
        learned: whether the tree is fitted to a forest between the points too, see `learned`; its
            tests may use counts of tiles, and `configs` is how many it has.
    """

    configs: int
    compound: bool
    price: float
    blur: float
    learned: bool = False


def grow_shaped(grower: Grower, rows: Rows, complexity: Complexity) -> tuple[Grown, list[int]]:
    """Tree and columns for one complexity, each adapted to the other until neither changes.

    `rows` are blurred already; `grower` must be of them and of `complexity.compound`.
    """
    useful = useful_columns(rows.loss)
    columns = choose(rows.loss, useful, complexity.configs)
    tree = prune(grower.grow(columns), complexity.price)
    for _ in range(3):
        # Leaves share one configuration each: choose again for leaves instead of for points.
        by_leaf = [_leaf_loss(rows, leaf) for leaf in tree.leaves()]
        again = choose(by_leaf, useful, complexity.configs)
        if again == columns:
            break
        other = prune(grower.grow(again), complexity.price)
        if cost(other, complexity.price) >= cost(tree, complexity.price) - 1e-9:
            break
        tree, columns = other, again
    return tree, columns


def _leaf_loss(rows: Rows, leaf: Grown) -> list[float]:
    return [sum(column) for column in zip(*(rows.loss[r] for r in leaf.rows), strict=True)]


class LeafRanking:
    """Ranks the columns in the leaves of trees that were grown on the same rows.

    Failures on the leaf's own points count first, then the loss on them plus a share of the loss
    on other points by their nearness; the share breaks ties even where `blur` is 0. Where the
    author's pruning drops the first, the best of the others for these points comes next, and so on.
    """

    def __init__(self, rows: Rows, columns: Sequence[int], blur: float) -> None:
        self._rows = rows
        self._columns = columns
        self._share = _OUTSIDE * blur if blur > 0 else 1e-6
        self._far = [
            [min(value, _FAR_FAILURE) for value in among(loss, pruned, columns)]
            for loss, pruned in zip(rows.loss, rows.pruned, strict=True)
        ]
        self._known: dict[tuple[int, ...], list[int]] = {}

    def of(self, leaf: Grown) -> list[int]:
        """Columns, best first."""
        if leaf.rows not in self._known:
            self._known[leaf.rows] = self._rank(leaf.rows)
        return self._known[leaf.rows]

    def _rank(self, inside: tuple[int, ...]) -> list[int]:
        near = list(map(max, zip(*(self._rows.near[own] for own in inside), strict=True)))
        for own in inside:
            near[own] = 0.0
        outside = [
            self._share * math.fsum(map(operator.mul, near, losses))
            for losses in zip(*self._far, strict=True)
        ]
        return ranked(self._rows, inside, dict(zip(self._columns, outside, strict=True)))


def ranked(rows: Rows, inside: Sequence[int], outside: Mapping[int, float]) -> list[int]:
    """The columns of `outside`, each with its share of the loss on other points, best first."""
    left, ranking, waiting = list(outside), list[int](), list(inside)
    while left:
        scores = {column: outside[column] for column in left}
        for r in waiting:
            for column, value in zip(left, among(rows.loss[r], rows.pruned[r], left), strict=True):
                scores[column] += value
        order = sorted(left, key=lambda c: (scores[c], c))
        waiting = [r for r in waiting if order[0] in rows.pruned[r]]
        taken = 1 if waiting else len(order)  # nobody waits for more: the order stands
        ranking += order[:taken]
        left = order[taken:]
    return ranking


_OUTSIDE = 0.3
_FAR_FAILURE = FAILURE / 1e5  # failing elsewhere speaks against a configuration; it does not forbid
