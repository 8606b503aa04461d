"""How alike two points are, for what a leaf may learn from points outside of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from kernelhub.formats.tree import Literal

from .terms import kinds

_CATEGORY = 2.0  # a different dtype counts like a factor of four in one size


def nearness(features: Sequence[Mapping[str, Literal]]) -> list[list[float]]:
    """`exp(-distance)` for each pair of rows, 1.0 for equal ones.

    The distance is the sum over features of the difference in factors of two (for positive numbers)
    or a constant where categories differ.
    """
    found = kinds(features)
    size = len(features)
    matrix = [[1.0] * size for _ in range(size)]
    for i in range(size):
        for j in range(i):
            far = sum(_apart(kind, features[i][n], features[j][n]) for n, kind in found.items())
            matrix[i][j] = matrix[j][i] = math.exp(-far)
    return matrix


def _apart(kind: str, a: Literal, b: Literal) -> float:
    if a == b:
        return 0.0
    if kind in ("int", "float") and a > 0 and b > 0:  # type: ignore[operator]
        return abs(math.log2(a) - math.log2(b))  # type: ignore[arg-type]
    return _CATEGORY
