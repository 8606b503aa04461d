"""Trees of several complexities over the same rows, and what they share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .grow import Grower, Grown, prune
from .learned import Learned
from .loss import Rows, blurred
from .shaped import Complexity, LeafRanking, grow_shaped
from .terms import compound_terms, single_terms


@dataclass(frozen=True, slots=True)
class Shape:
    """A tree of one complexity.

    Attributes:
        tree: pruned by the complexity's price.
        ranking: columns of a leaf of this tree, or of one pruned further, best first.
    """

    tree: Grown
    ranking: Callable[[Grown], list[int]]


class Ground:
    """The rows of one fit."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._blurred: dict[float, Rows] = {}
        self._growers: dict[tuple[float, bool], Grower] = {}

    def shape(self, complexity: Complexity, *, simplest: bool = False) -> Shape:
        """A tree of this complexity.

        Args:
            simplest: look for a simpler one that loses no more.
        """
        if complexity.learned:
            learned = Learned(self._rows, complexity.configs)
            return Shape(prune(learned.full, complexity.price), learned.ranking)
        rows, grower = self._prepared(complexity)
        tree, columns = grow_shaped(grower, rows, complexity)
        if simplest:
            tree = grower.simplest(tree, columns, complexity.price)
        return Shape(tree, LeafRanking(rows, columns, complexity.blur).of)

    def _prepared(self, complexity: Complexity) -> tuple[Rows, Grower]:
        blur, key = complexity.blur, (complexity.blur, complexity.compound)
        if blur not in self._blurred:
            self._blurred[blur] = blurred(self._rows, blur)
        rows = self._blurred[blur]
        if key not in self._growers:
            terms = compound_terms if complexity.compound else single_terms
            self._growers[key] = Grower(rows, terms(rows.features))
        return rows, self._growers[key]
