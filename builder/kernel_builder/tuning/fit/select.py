"""How complex may the tree be? Cross-validation over shapes.

Users call a kernel with the shapes that its author named and with others. So a complexity is judged
by both: the loss on the author's points of the tree that has seen them, and the loss on points that
were left out.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from kernel_builder.tuning.spread import spread

from .ground import Ground
from .grow import leaf_of, prune, tested
from .learned import LEAST_POINTS
from .loss import FAILURE, Rows
from .shaped import Complexity, FitOptions

_CONFIGS = (1, 2, 3, 4, 6, 8, 12, 16)
_PRICES = (0.01, 0.03, 0.1, 0.3)
_BLURS = (0.0, 1.0)
_CLOSE = 0.001  # a simpler tree may be worse by this much log slowdown per point
_FAILED_OUTSIDE = 3.0  # log slowdown that a failure on a left-out point counts for


def select_complexity(rows: Rows, options: FitOptions) -> tuple[Complexity, int]:
    """The simplest complexity whose loss is about the least.

    Returns:
        The complexity, and how many were compared.
    """
    candidates = _grid(options, len(rows.features))
    if len(rows.features) < 3:
        return replace(candidates[-1], price=_PRICES[0]), 1
    everything = list(range(len(rows.features)))
    parts = [([], everything), *((f, f) for f in folds(len(rows.features), options.folds))]
    whole, *others = spread(partial(_trials, rows, candidates), parts)
    totals = {complexity: trial.loss for complexity, trial in whole.items()}
    for part in others:
        for complexity, trial in part.items():
            totals[complexity] += trial.loss
    least = min(totals.values())
    close = _CLOSE * len(rows.features)
    good = [complexity for complexity in candidates if totals[complexity] <= least + close]
    chosen = min(good, key=lambda c: (c.configs, whole[c].tested, -c.price, c.blur))
    return chosen, len(candidates)


@dataclass(frozen=True, slots=True)
class _Trial:
    """Trees of one complexity: their loss, and how many features the tests of the last one name.

    One test of a product may say what takes several tests of its factors.
    """

    loss: float
    tested: int


def _grid(options: FitOptions, points: int) -> list[Complexity]:
    most = options.max_configs
    limits = sorted({k for k in _CONFIGS if k < most} | {most})
    plain = [
        Complexity(configs=k, compound=compound, price=price, blur=blur)
        for blur, k, compound, price in itertools.product(_BLURS, limits, (False, True), _PRICES)
        if k > 1 or (price, compound) == (_PRICES[0], False)
    ]
    if points < LEAST_POINTS or most == 1:
        return plain
    return plain + [
        Complexity(configs=most, compound=True, price=price, blur=0.0, learned=True)
        for price in _PRICES
    ]


def _trials(
    rows: Rows, candidates: Sequence[Complexity], part: tuple[Sequence[int], Sequence[int]]
) -> dict[Complexity, _Trial]:
    """Trees that are grown without some rows, and their total loss on others.

    Args:
        part: rows left out, and rows judged.
    """
    left_out, judged = part
    ground = Ground(rows.without(frozenset(left_out)))
    trials: dict[Complexity, _Trial] = {}
    for unpruned, group in itertools.groupby(candidates, key=lambda c: replace(c, price=0.0)):
        shape = ground.shape(unpruned)
        for complexity in group:
            tree = prune(shape.tree, complexity.price)
            loss = math.fsum(
                _paid(rows, row, shape.ranking(leaf_of(tree, rows.features[row]))) for row in judged
            )
            trials[complexity] = _Trial(loss, tested(tree))
    return trials


def _paid(rows: Rows, row: int, ranking: Sequence[int]) -> float:
    """What dispatch by a ranking costs on one row, bounded: one failure must not drown what all
    other points say about the complexity."""
    loss, pruned = rows.loss[row], rows.pruned[row]
    column = next((c for c in ranking if c not in pruned), ranking[0])
    value = loss[column] - min(loss)
    return min(value, _FAILED_OUTSIDE) if value < FAILURE / 2 else _FAILED_OUTSIDE


def folds(size: int, most: int) -> list[list[int]]:
    """Indices in at most `most` groups, each left out once; every index alone where that fits."""
    order = list(range(size))
    random.Random(0).shuffle(order)  # noqa: S311 - a fixed, even split, no secret
    groups = min(size, most)
    return [sorted(order[start::groups]) for start in range(groups)]
