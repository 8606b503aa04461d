"""A tree that is fitted to a forest between the measured points, and to these points themselves.

A few hundred points leave gaps in which a tree's thresholds lie by chance. A forest of random trees
over the same tests errs less there, but is no one tree that people read. So points are drawn
between the measured ones, the forest says what each configuration would cost on them, and one tree
is grown on all of them together.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from kernelhub.formats.tree import Literal

from .arrays import Floats
from .drawing import draw
from .forest import Forest
from .grow import Grower, Grown
from .loss import FAILURE, Rows, charged, slowdowns
from .shaped import ranked
from .subset import choose, useful_columns
from .terms import Term, categories, tile_terms

LEAST_POINTS = 64  # fewer are too few to learn from
_DRAWN = 2000
_MEASURED = 3.0  # a measured point counts as much as so many drawn ones
_MOST_DEPTH = 16


class Learned:
    """The full tree over some rows, and the ranking of its leaves.

    Args:
        rows: of the measured points.
        configs: most configurations in the tree.
    """

    def __init__(self, rows: Rows, configs: int) -> None:
        self._columns = choose(rows.loss, useful_columns(rows.loss), configs)
        self._rows = rows.only(self._columns)
        terms = tile_terms(rows.features, self._rows.blocks)
        measured = len(rows.features)
        drawn = draw(rows.features, _DRAWN, random.Random(0))  # noqa: S311 - no secret
        seen = design([*rows.features, *drawn], terms)
        forest = Forest(seen[:measured], slowdowns(self._rows))
        costs = charged(forest.predict(seen[measured:]), rows.goal)
        costs -= costs.min(axis=1, keepdims=True)
        # All together weigh as much as the measured points alone: prices mean the same.
        unit = measured / (len(drawn) + _MEASURED * measured)
        loss = [
            tuple(v if v >= FAILURE / 2 else v * unit * _MEASURED for v in row)
            for row in self._rows.loss
        ]
        self._costs = costs / _MEASURED
        together = replace(
            self._rows,
            features=(*rows.features, *drawn),
            loss=(*loss, *map(tuple, (costs * unit).tolist())),
            pruned=(*self._rows.pruned, *[frozenset[int]()] * len(drawn)),
        )
        self._measured = measured
        grower = Grower(together, terms, _MOST_DEPTH)
        self.full = grower.grow(range(len(self._columns)))

    def ranking(self, leaf: Grown) -> list[int]:
        """Columns of the rows, best first."""
        inside = [r for r in leaf.rows if r < self._measured]
        between = [r - self._measured for r in leaf.rows if r >= self._measured]
        costs = self._costs[between].sum(axis=0).tolist()
        order = ranked(self._rows, inside, dict(enumerate(costs)))
        return [self._columns[index] for index in order]


def design(features: Sequence[Mapping[str, Literal]], terms: Sequence[Term]) -> Floats:
    """What the forest sees of points: (points, terms and categories). Sizes matter by ratio.

    Those that it learns from and those that it is asked for come together, since a term that is
    positive on all of them is seen as a logarithm.
    """
    words = [
        (name, value)
        for name in categories(features)
        for value in sorted({str(row[name]) for row in features})[1:]
    ]
    values = np.array([[float(term.value(row)) for term in terms] for row in features])
    positive = (values > 0).all(axis=0)
    # Rounded, since the last bits of a logarithm differ between machines.
    values[:, positive] = np.round(np.log2(values[:, positive]), 9)
    flags = [[float(str(row[name]) == value) for name, value in words] for row in features]
    return np.hstack([values, np.array(flags, float).reshape(len(features), len(words))])
