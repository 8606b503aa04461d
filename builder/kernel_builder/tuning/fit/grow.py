"""Grow a tree of splits that lowers the loss, then prune it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kernelhub.formats.tree import Categorical, Literal, Numeric
from kernelhub.formats.tree_compile import holds

from .arrays import Floats, Indices, Truths
from .cut import best_cut
from .loss import FAILURE, Rows
from .terms import Term, categorical_tests, threshold_between

_MOST_DEPTH = 8
_EPSILON = 1e-9
# What a choice costs that the author's pruning drops, above the next in rank: dispatch passes it
# over, but a tree that counts on that is hard to read and goes astray on shapes between.
_PASSED_OVER = 0.3
_DISCOUNT = 0.05  # a product must gain this share more than a single feature, per further factor


@dataclass(frozen=True, slots=True)
class Grown:
    """A subtree over rows. A leaf has no test.

    Attributes:
        rows: indices of the training rows that end up here.
        loss: total over these rows of each chosen column, in the order of the columns.
    """

    rows: tuple[int, ...]
    loss: tuple[float, ...]
    test: Numeric | Categorical | None = None
    yes: Grown | None = None
    no: Grown | None = None

    def leaves(self) -> Iterator[Grown]:
        """Left to right."""
        if self.yes is None or self.no is None:
            yield self
        else:
            yield from self.yes.leaves()
            yield from self.no.leaves()


@dataclass(frozen=True, slots=True)
class _Split:
    score: float
    test: Numeric | Categorical
    yes: Indices
    no: Indices


@dataclass(frozen=True, slots=True)
class _Scale:
    """One term: the rows in its order, and its value at each row by the row's index."""

    term: Term
    order: Indices
    values: Floats


Test = _Scale | Categorical
"""What a node may test: a size, product or ratio, whose threshold is to be found, or categories."""


class Grower:
    """Grows trees over the rows of one fit; terms and their values are computed once.

    Args:
        terms: numbers that a test may compare.
        most_depth: of a tree; it grows deeper only where a configuration would fail otherwise.
    """

    def __init__(self, rows: Rows, terms: Sequence[Term], most_depth: int = _MOST_DEPTH) -> None:
        self._rows = rows
        self._most_depth = most_depth
        self._tests: list[Test] = [
            *(_scale(term, rows) for term in terms), *categorical_tests(rows.features)
        ]  # fmt: skip
        self._blocks: list[frozenset[int]] = []

    def grow(self, columns: Sequence[int], first: Test | None = None) -> Grown:
        """The full tree that chooses among `columns`.

        Args:
            first: what the root tests; None: what gains most there.
        """
        losses = np.array(
            [
                among(row, pruned, columns)
                for row, pruned in zip(self._rows.loss, self._rows.pruned, strict=True)
            ]
        )
        self._blocks = [self._rows.blocks[c] for c in columns]
        rows = np.arange(len(losses))
        return self._node(rows, losses, 0, self._tests if first is None else [first])

    def simplest(self, usual: Grown, columns: Sequence[int], price: float) -> Grown:
        """A pruned tree among `columns`, or the one with the fewest tests that loses no more.

        What gains most at the root may stand in the way of a simpler tree, so each single feature
        has its turn there. It is not a search for less loss, which would find that in the noise.
        """
        single = [t for t in self._tests if isinstance(t, Categorical) or t.term.size == 1]
        others = [prune(self.grow(columns, first), price) for first in single]
        as_good = [tree for tree in others if cost(tree, 0.0) <= cost(usual, 0.0) + _EPSILON]
        return min([usual, *as_good], key=tested)

    def _node(self, rows: Indices, losses: Floats, depth: int, tests: Sequence[Test]) -> Grown:
        mine = losses[rows]
        totals = mine.sum(axis=0)
        here = totals.min()
        leaf = Grown(rows=tuple(rows.tolist()), loss=tuple(totals.tolist()))
        reachable = mine.min(axis=1).sum()
        fails = here - reachable >= FAILURE / 2  # another choice would work where this one fails
        if here - reachable <= _EPSILON or (depth >= self._most_depth and not fails):
            return leaf
        split = self._best_split(rows, losses, totals, tests, at_any_price=bool(fails))
        if split is None:
            return leaf
        return Grown(
            rows=leaf.rows,
            loss=leaf.loss,
            test=split.test,
            yes=self._node(split.yes, losses, depth + 1, self._tests),
            no=self._node(split.no, losses, depth + 1, self._tests),
        )

    def _best_split(
        self,
        rows: Indices,
        losses: Floats,
        totals: Floats,
        tests: Sequence[Test],
        *,
        at_any_price: bool,
    ) -> _Split | None:
        inside: Truths = np.zeros(len(losses), bool)
        inside[rows] = True
        best: _Split | None = None
        for test in tests:
            if isinstance(test, Categorical):
                split = self._divide(test, rows, losses, totals)
            else:
                split = self._cut(test, test.order[inside[test.order]], losses, totals)
            if split is not None and (best is None or split.score > best.score + _EPSILON):
                best = split
        if best is None or (best.score <= _EPSILON and not at_any_price):
            return None
        return best

    def _divide(
        self, test: Categorical, rows: Indices, losses: Floats, totals: Floats
    ) -> _Split | None:
        holding = np.array([self._rows.features[r][test.feature] in test.values for r in rows])
        yes, no = rows[holding], rows[~holding]
        if not yes.size or not no.size:
            return None
        parted = losses[yes].sum(axis=0).min() + losses[no].sum(axis=0).min()
        return _Split(float(totals.min() - parted), test, yes, no)

    def _cut(self, scale: _Scale, order: Indices, losses: Floats, totals: Floats) -> _Split | None:
        values = scale.values[order]
        cut = best_cut(values, losses[order], totals)
        if cut is None:
            return None
        own: frozenset[int] = frozenset()
        if scale.term.is_size:  # blocks that only the choice below has
            own = self._blocks[cut.choice_below] - self._blocks[cut.choice_above]
        low, high = float(values[cut.position]), float(values[cut.position + 1])
        threshold = threshold_between(low, high, own)
        if threshold is None:  # too close to tell apart
            return None
        below, above = np.sort(order[: cut.position + 1]), np.sort(order[cut.position + 1 :])
        score = cut.gain * (1.0 - _DISCOUNT * (scale.term.size - 1))
        return _Split(score, scale.term.test(threshold), below, above)


def _scale(term: Term, rows: Rows) -> _Scale:
    values = np.array([term.value(features) for features in rows.features], float)
    return _Scale(term, np.argsort(values, kind="stable"), values)


def among(
    loss: Sequence[float], pruned: frozenset[int], columns: Sequence[int]
) -> tuple[float, ...]:
    """Losses on one row of each of `columns`, of those that are pruned there what the best of the
    others costs: dispatch goes on to the next in the ranking."""
    admitted = [loss[c] for c in columns if c not in pruned]
    instead = min(admitted) + _PASSED_OVER if admitted else FAILURE
    return tuple(instead if c in pruned else loss[c] for c in columns)


def prune(node: Grown, price: float) -> Grown:
    """Remove splits that lower the loss by less than `price` for each leaf that they add."""
    return _prune(node, price)[0]


def _prune(node: Grown, price: float) -> tuple[Grown, float]:
    own = min(node.loss) + price
    if node.yes is None or node.no is None:
        return node, own
    yes, yes_cost = _prune(node.yes, price)
    no, no_cost = _prune(node.no, price)
    if own <= yes_cost + no_cost + _EPSILON:
        return Grown(rows=node.rows, loss=node.loss), own
    return (
        Grown(rows=node.rows, loss=node.loss, test=node.test, yes=yes, no=no),
        yes_cost + no_cost,
    )


def leaf_of(node: Grown, features: Mapping[str, Literal]) -> Grown:
    """The leaf that a point ends up in."""
    while node.test is not None and node.yes is not None and node.no is not None:
        node = node.yes if holds(node.test, features) else node.no
    return node


def cost(tree: Grown, price: float) -> float:
    """Loss of a tree, and the price of its leaves."""
    return sum(min(leaf.loss) + price for leaf in tree.leaves())


def tested(node: Grown) -> int:
    """How many features the tests of a tree name, each as often as it is named."""
    if node.test is None or node.yes is None or node.no is None:
        return 0
    own = len(node.test.left) + len(node.test.right) if isinstance(node.test, Numeric) else 1
    return own + tested(node.yes) + tested(node.no)
