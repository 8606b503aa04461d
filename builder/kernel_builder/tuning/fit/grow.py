"""Grow a tree of splits that lowers the loss, then prune it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kernelhub.formats.tree import Categorical, Literal, Numeric
from kernelhub.formats.tree_compile import holds

from .cut import best_cut
from .loss import FAILURE, Rows
from .terms import Term, categorical_tests, numeric_terms, threshold_between

_MOST_DEPTH = 8  # deeper only where a configuration would fail otherwise
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
    yes: tuple[int, ...]
    no: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Scale:
    """One term: the rows in its order, and its value at each row by the row's index."""

    term: Term
    order: tuple[int, ...]
    values: tuple[float, ...]


Test = _Scale | Categorical
"""What a node may test: a size, product or ratio, whose threshold is to be found, or categories."""


class Grower:
    """Grows trees over the rows of one fit; terms and their values are computed once."""

    def __init__(self, rows: Rows, *, compound: bool) -> None:
        self._rows = rows
        self._tests: list[Test] = [
            *(_scale(term, rows) for term in numeric_terms(rows.features, compound)),
            *categorical_tests(rows.features),
        ]
        self._blocks: list[frozenset[int]] = []

    def grow(self, columns: Sequence[int], first: Test | None = None) -> Grown:
        """The full tree that chooses among `columns`.

        Args:
            first: what the root tests; None: what gains most there.
        """
        losses = [
            among(row, pruned, columns)
            for row, pruned in zip(self._rows.loss, self._rows.pruned, strict=True)
        ]
        self._blocks = [self._rows.blocks[c] for c in columns]
        return self._node(
            tuple(range(len(losses))), losses, 0, self._tests if first is None else [first]
        )

    def simplest(self, usual: Grown, columns: Sequence[int], price: float) -> Grown:
        """A pruned tree among `columns`, or the one with the fewest tests that loses no more.

        What gains most at the root may stand in the way of a simpler tree, so each single feature
        has its turn there. It is not a search for less loss, which would find that in the noise.
        """
        single = [t for t in self._tests if isinstance(t, Categorical) or t.term.size == 1]
        others = [prune(self.grow(columns, first), price) for first in single]
        as_good = [tree for tree in others if cost(tree, 0.0) <= cost(usual, 0.0) + _EPSILON]
        return min([usual, *as_good], key=tested)

    def _node(
        self,
        rows: tuple[int, ...],
        losses: Sequence[tuple[float, ...]],
        depth: int,
        tests: Sequence[Test],
    ) -> Grown:
        totals = _sum(losses, rows)
        here = min(totals)
        leaf = Grown(rows=rows, loss=totals)
        reachable = sum(min(losses[r]) for r in rows)
        fails = here - reachable >= FAILURE / 2  # another choice would work where this one fails
        if here - reachable <= _EPSILON or (depth >= _MOST_DEPTH and not fails):
            return leaf
        split = self._best_split(rows, losses, totals, tests, at_any_price=fails)
        if split is None:
            return leaf
        return Grown(
            rows=rows,
            loss=totals,
            test=split.test,
            yes=self._node(split.yes, losses, depth + 1, self._tests),
            no=self._node(split.no, losses, depth + 1, self._tests),
        )

    def _best_split(
        self,
        rows: tuple[int, ...],
        losses: Sequence[tuple[float, ...]],
        totals: tuple[float, ...],
        tests: Sequence[Test],
        *,
        at_any_price: bool,
    ) -> _Split | None:
        here, inside = min(totals), set(rows)
        best: _Split | None = None
        for test in tests:
            if isinstance(test, Categorical):
                split = self._divide(test, rows, losses, here)
            else:
                split = self._cut(test, [r for r in test.order if r in inside], losses, totals)
            if split is not None and (best is None or split.score > best.score + _EPSILON):
                best = split
        if best is None or (best.score <= _EPSILON and not at_any_price):
            return None
        return best

    def _divide(
        self,
        test: Categorical,
        rows: tuple[int, ...],
        losses: Sequence[tuple[float, ...]],
        here: float,
    ) -> _Split | None:
        yes = tuple(r for r in rows if self._rows.features[r][test.feature] in test.values)
        if not 0 < len(yes) < len(rows):
            return None
        others = set(rows).difference(yes)
        no = tuple(r for r in rows if r in others)
        return _Split(here - min(_sum(losses, yes)) - min(_sum(losses, no)), test, yes, no)

    def _cut(
        self,
        scale: _Scale,
        order: Sequence[int],
        losses: Sequence[tuple[float, ...]],
        totals: tuple[float, ...],
    ) -> _Split | None:
        values = [scale.values[r] for r in order]
        cut = best_cut(values, [losses[r] for r in order], totals)
        if cut is None:
            return None
        own: frozenset[int] = frozenset()
        if scale.term.size == 1:  # blocks that only the choice below has
            own = self._blocks[cut.choice_below] - self._blocks[cut.choice_above]
        threshold = threshold_between(values[cut.position], values[cut.position + 1], own)
        if threshold is None:  # too close to tell apart
            return None
        below, above = order[: cut.position + 1], order[cut.position + 1 :]
        score = cut.gain * (1.0 - _DISCOUNT * (scale.term.size - 1))
        test = scale.term.test(threshold)
        return _Split(score, test, tuple(sorted(below)), tuple(sorted(above)))


def _scale(term: Term, rows: Rows) -> _Scale:
    values = tuple(term.value(features) for features in rows.features)
    return _Scale(term, tuple(sorted(range(len(values)), key=values.__getitem__)), values)


def among(
    loss: Sequence[float], pruned: frozenset[int], columns: Sequence[int]
) -> tuple[float, ...]:
    """Losses on one row of each of `columns`, of those that are pruned there what the best of the
    others costs: dispatch goes on to the next in the ranking."""
    admitted = [loss[c] for c in columns if c not in pruned]
    instead = min(admitted) + _PASSED_OVER if admitted else FAILURE
    return tuple(instead if c in pruned else loss[c] for c in columns)


def _sum(losses: Sequence[tuple[float, ...]], rows: Sequence[int]) -> tuple[float, ...]:
    return tuple(map(sum, zip(*(losses[r] for r in rows), strict=True)))


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
