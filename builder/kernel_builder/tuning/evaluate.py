"""How good is a tree? What dispatch runs by it on measured points, against the best known there."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from kernel_builder.tuning.fit import Complexity, FitOptions, fit
from kernel_builder.tuning.fit.select import folds
from kernel_builder.tuning.fit.terms import kinds
from kernel_builder.tuning.matrix import Cell, Matrix, Point, geomean
from kernel_builder.tuning.spread import spread
from kernelhub.errors import TuningError
from kernelhub.formats.tree import Config, Leaf, Literal, Node
from kernelhub.formats.tree_compile import holds

_MOST_FORESTS = 24  # each takes seconds

Rank = Callable[[Mapping[str, Literal]], Sequence[Config]]
"""Features of a launch -> configurations, best first, never empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """The choice on one point.

    Attributes:
        point: where.
        config: what runs there, see `Matrix.runs`.
        slowdown: against the best known; inf where the choice fails, None where it was not measured
            or where nothing at all works.
        error: of the slowdown, from those of the two times.
    """

    point: Point
    config: Config
    slowdown: float | None
    error: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """The choices on a set of points."""

    scores: tuple[Score, ...]

    @property
    def known(self) -> list[Score]:
        """Those that can be compared."""
        return [s for s in self.scores if s.slowdown is not None]

    @property
    def geomean(self) -> float:
        """Weighted geometric mean of the slowdowns: what the average user pays."""
        known = self.known
        return geomean([s.slowdown or 1.0 for s in known], [s.point.weight for s in known])

    @property
    def worst(self) -> float:
        """The largest slowdown: what the unluckiest point pays."""
        return max((s.slowdown or 1.0 for s in self.known), default=math.nan)

    @property
    def unmeasured(self) -> list[Score]:
        """Points whose choice has no measurement; they speak neither for nor against the tree."""
        return [s for s in self.scores if s.slowdown is None]

    def above(self, limit: float) -> list[Score]:
        """Points that are over the limit by more than twice their error, the worst first."""
        missed = [s for s in self.known if (s.slowdown or 1.0) - 2 * s.error > limit]
        return sorted(missed, key=lambda s: -(s.slowdown or 1.0))


def slowdown_text(slowdown: float) -> str:
    """A slowdown for people; a choice that fails has none."""
    return "fails" if math.isinf(slowdown) else f"{slowdown:.3f}x"


def ranker(root: Node, configs: Sequence[Config]) -> Rank:
    """The configurations of the tree's leaf for some features.

    Raises, when it is asked:
        TuningError: a feature that the tree tests is absent, or of another kind.
    """

    def rank(features: Mapping[str, Literal]) -> Sequence[Config]:
        node = root
        try:
            while not isinstance(node, Leaf):
                node = node.yes if holds(node.test, features) else node.no
        except (KeyError, TypeError) as error:
            raise TuningError(
                f"the tree tests what cannot be asked of a point with {dict(features)}: {error}",
                hint="build it anew from these points: kernel-builder tune --phase build",
            ) from error
        return [configs[index] for index in node.ranking]

    return rank


def evaluate(rank: Rank, matrix: Matrix) -> Scores:
    """Score a way to choose on every point of a matrix.

    A point on which no configuration works at all has no slowdown and counts as unmeasured.
    """
    scores = []
    for point in matrix.points:
        config = matrix.runs(point, rank(point.features))
        worked = matrix.best(point) is not None
        slowdown = matrix.slowdown(point, config) if worked else None
        error = _error(matrix.cell(point, config), matrix.best_cell(point))
        scores.append(Score(point=point, config=config, slowdown=slowdown, error=error))
    return Scores(scores=tuple(scores))


def testable(matrix: Matrix) -> Matrix:
    """Without the features that some point lacks or has of another kind, be it held out or one on
    which nothing works: a tree could not test them on every launch."""
    shared = kinds([p.features for p in matrix.points])
    return matrix.only(
        [replace(p, features={name: p.features[name] for name in shared}) for p in matrix.points]
    )


def _error(chosen: Cell | None, best: Cell | None) -> float:
    if chosen is None or best is None or chosen is best or not chosen.ms or not best.ms:
        return 0.0
    return chosen.ms / best.ms * math.hypot(chosen.error / chosen.ms, best.error / best.ms)


def leave_one_shape_out(matrix: Matrix, options: FitOptions, complexity: Complexity) -> Scores:
    """Score every point by a tree that was fitted without it and without its equals.

    The complexity is given: it was chosen by cross-validation before. Points with equal features
    are left out together, and where a tree takes a forest to fit, as many more as it takes to fit
    no more than `_MOST_FORESTS` of them.
    """
    groups: dict[tuple[tuple[str, Literal], ...], list[Point]] = {}
    for point in matrix.points:
        groups.setdefault(tuple(sorted(point.features.items())), []).append(point)
    shapes = list(groups.values())
    most = _MOST_FORESTS if complexity.learned else len(shapes)
    parts = [[p for i in fold for p in shapes[i]] for fold in sorted(folds(len(shapes), most))]
    scored = spread(partial(_left_out, testable(matrix), options, complexity), parts)
    return Scores(scores=tuple(score for of_group in scored for score in of_group))


def _left_out(
    matrix: Matrix, options: FitOptions, complexity: Complexity, left_out: Sequence[Point]
) -> tuple[Score, ...]:
    """Scores of some points by a tree that was fitted to the others; none if those do not work."""
    ids = {p.id for p in left_out}
    training = matrix.only([p for p in matrix.points if p.id not in ids])
    if not any(training.best(p) is not None for p in training.points):
        return ()
    fitted = fit(training, options, complexity=complexity)
    return evaluate(ranker(fitted.root, fitted.configs), matrix.only(left_out)).scores
