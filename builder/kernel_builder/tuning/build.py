"""The building half of `tune`: measurements -> a tree that meets its goal, with its record. No GPU.

What `max_slowdown` means: the tree that ships may be slower than the best known configuration by
at most this factor on *every* measured point, fitted and held out, beyond measurement error; and
in leave-one-shape-out, where every point is judged by a tree that has not seen it, the *geometric
mean* may be at most this. A point on which the choice fails or was not measured misses the goal.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from kernel_builder.tuning.evaluate import (
    Scores,
    evaluate,
    leave_one_shape_out,
    ranker,
    testable,
)
from kernel_builder.tuning.fit import Complexity, FitOptions, fit
from kernel_builder.tuning.log import Context, Measurements
from kernel_builder.tuning.matrix import Matrix
from kernelhub.errors import TuningError
from kernelhub.formats.tree import Tree


@dataclass(frozen=True, slots=True, kw_only=True)
class Miss:
    """One way in which a tree misses its goal.

    Attributes:
        where: "fitted", "held out" or "left out", and the case if it is about one.
        text: what is missed and by how much, for people.
        slowdown: None where there is no number.
    """

    where: str
    text: str
    slowdown: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A tree and how good it is.

    Attributes:
        tree: what ships.
        matrix: the measurements behind it.
        context: what was measured, where and how.
        fitted: scores on the points that it was fitted to.
        held_out: scores on the points that it was not fitted to; empty if there are none.
        left_out: leave-one-shape-out scores of trees of the same complexity.
        single: scores on all points of the one configuration that is best for all together.
        misses: how it misses the goal; empty if it does not.
        recorded: those of them that the evidence beside the tree has told of already.
        complexity: of the tree.
        considered: number of complexities that were compared to choose it.
    """

    tree: Tree
    matrix: Matrix
    context: Context
    fitted: Scores
    held_out: Scores
    left_out: Scores
    single: Scores
    misses: tuple[Miss, ...]
    complexity: Complexity
    considered: int = 0
    recorded: tuple[Miss, ...] = ()

    @property
    def new_misses(self) -> tuple[Miss, ...]:
        """Misses that nobody has been told of."""
        return tuple(miss for miss in self.misses if miss not in self.recorded)


def newest_context(
    measurements: Measurements, source: str | None, l2: str | None = None
) -> Context:
    """The context to build from: the one that was measured last.

    Args:
        source: hash of the kernel's source as it is now; None if it cannot be known.
        l2: "warm" or "cold" if that matters.

    Raises:
        TuningError: there is none, or all are of another source of the kernel.
    """
    fitting = [
        c
        for c in measurements.newest_first()
        if (l2 is None or c.policy.get("l2") == l2) and measurements.count(c)
    ]
    if not fitting:
        kind = f" with a {l2} L2" if l2 else ""
        raise TuningError(
            f"{measurements.path} holds no measurements{kind}",
            hint="measure first: kernel-builder tune --phase measure",
        )
    current = [c for c in fitting if source in (None, c.source)]
    if not current:
        raise TuningError(
            f"{measurements.path}: all measurements are of another source of the kernel",
            hint="the kernel changed since: measure again with kernel-builder tune",
        )
    return current[0]


def build_tree(measurements: Measurements, context: Context, options: FitOptions) -> Report:
    """Fit, evaluate and judge the tree for one context.

    Raises:
        TuningError: no configuration works on any point.
    """
    matrix = measurements.matrix(context)
    fitted = fit(testable(matrix).split()[0], options)
    tree = Tree(
        kernel=context.kernel,
        device=context.device,
        tools=dict(context.tools),
        source_hash=context.source,
        features=fitted.features,
        configs=fitted.configs,
        root=fitted.root,
    )
    report = judge(tree, matrix, context, options, fitted.complexity)
    return replace(report, considered=fitted.considered)


def judge(
    tree: Tree, matrix: Matrix, context: Context, options: FitOptions, complexity: Complexity
) -> Report:
    """Score a tree, whoever made it, on measurements whose held-out points it was not fitted to."""
    training, held_out = matrix.split()
    rank = ranker(tree.root, tree.configs)
    scores = {
        "fitted": evaluate(rank, training),
        "held out": evaluate(rank, held_out),
        "left out": leave_one_shape_out(training, options, complexity),
    }
    one = fit(training, replace(options, max_configs=1))
    return Report(
        tree=tree,
        matrix=matrix,
        context=context,
        fitted=scores["fitted"],
        held_out=scores["held out"],
        left_out=scores["left out"],
        single=evaluate(ranker(one.root, one.configs), matrix),
        misses=tuple(find_misses(matrix, scores, options.max_slowdown)),
        complexity=complexity,
    )


def find_misses(matrix: Matrix, scores: dict[str, Scores], limit: float) -> list[Miss]:
    """Every way in which the scores miss the goal, see the module."""
    misses = []
    for where in ("fitted", "held out"):
        for score in scores[where].above(limit):
            worst = score.slowdown
            fails = worst is None or math.isinf(worst)
            text = "the choice fails" if fails else f"{worst:.3f}x of the best, limit {limit:.3f}x"
            misses.append(Miss(where=f"{where}: {score.point.case}", text=text, slowdown=worst))
        for score in scores[where].unmeasured:
            nothing = matrix.best(score.point) is None
            text = "no configuration works" if nothing else "the choice was not measured"
            misses.append(Miss(where=f"{where}: {score.point.case}", text=text))
    mean = scores["left out"].geomean
    if mean > limit:
        text = f"geometric mean {mean:.3f}x of the best, limit {limit:.3f}x"
        if math.isinf(mean):
            count = sum(score.slowdown == math.inf for score in scores["left out"].known)
            text = f"the choice fails on {count} of the shapes"
        misses.append(Miss(where="left out", text=text, slowdown=mean))
    return misses
