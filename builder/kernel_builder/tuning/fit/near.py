"""How alike two points are, for what a leaf may learn from points outside of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from kernelhub.formats.tree import Literal

from .terms import categories, numbers

_CATEGORY = 2.0  # a different dtype counts like a factor of four in one size


def nearness(features: Sequence[Mapping[str, Literal]]) -> tuple[tuple[float, ...], ...]:
    """`exp(-distance)` for each pair of rows, 1.0 for equal ones.

    The distance is the sum over sizes of the difference in factors of two, of features that say the
    same only the first, and a constant where a string or a truth value differs.
    """
    names = numbers(features)
    words = categories(features)
    size = len(features)
    matrix = [[1.0] * size for _ in range(size)]
    for i in range(size):
        for j in range(i):
            a, b = features[i], features[j]
            far = sum(_apart(a[n], b[n]) for n in names)
            far += _CATEGORY * any(a[n] != b[n] for n in words)
            matrix[i][j] = matrix[j][i] = math.exp(-far)
    return tuple(map(tuple, matrix))


def _apart(a: Literal, b: Literal) -> float:
    if a == b:
        return 0.0
    if a > 0 and b > 0:  # type: ignore[operator]
        return abs(math.log2(a) - math.log2(b))  # type: ignore[arg-type]
    return _CATEGORY
