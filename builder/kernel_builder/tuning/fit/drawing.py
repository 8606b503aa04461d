"""Points between those that were measured."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence

from kernelhub.formats.tree import Literal

from .terms import kinds, single_terms


def draw(
    features: Sequence[Mapping[str, Literal]], count: int, source: random.Random
) -> list[dict[str, Literal]]:
    """Points whose sizes lie evenly, by ratio, in the ranges of those that were measured.

    Each takes what is no positive number from a measured point. A size that never falls while
    another rises follows that one (a number of blocks, say); the others are drawn apart from each
    other, as multiples of what all measured ones are multiples of. No point is larger, by the
    product of its sizes, than the largest that was measured.
    """
    names = [str(term.left[0]) for term in single_terms(features)]
    sizes = [name for name in names if all(_positive(row[name]) for row in features)]
    leaders: list[str] = []
    followers: dict[str, str] = {}
    for name in sizes:
        leader = next((other for other in leaders if _follows(features, name, other)), None)
        if leader is None:
            leaders.append(name)
        else:
            followers[name] = leader
    columns = {name: [row[name] for row in features] for name in leaders}
    largest = max(math.prod(_number(row[n]) for n in leaders) for row in features)
    is_int = {name: kind == "int" for name, kind in kinds(features).items()}
    drawn: list[dict[str, Literal]] = []
    while len(drawn) < count:
        point = dict(source.choice(features))
        for name in leaders:
            point[name] = _between(columns[name], source.random(), whole=is_int[name])
        for name, leader in followers.items():
            nearest = min(features, key=lambda row: _apart(row[leader], point[leader]))
            point[name] = nearest[name]
        # A range's ends are measured, but not all of its corners.
        if math.prod(_number(point[n]) for n in leaders) <= largest:
            drawn.append(point)
    return drawn


def _follows(features: Sequence[Mapping[str, Literal]], name: str, leader: str) -> bool:
    pairs = sorted({(_number(row[leader]), _number(row[name])) for row in features})
    ahead = [leading for leading, _ in pairs]
    values = [value for _, value in pairs]
    return len(set(ahead)) == len(pairs) and values == sorted(values)


def _between(values: Sequence[Literal], share: float, *, whole: bool) -> float | int:
    low, high = min(map(_number, values)), max(map(_number, values))
    value = low * math.pow(high / low, share)
    if not whole:
        return value
    step = math.gcd(*(int(_number(v)) for v in values))
    return min(max(round(value / step) * step, int(low)), int(high))


def _apart(a: Literal, b: Literal) -> float:
    return abs(math.log(_number(a) / _number(b)))


def _positive(value: Literal) -> bool:
    return isinstance(value, (int, float)) and value > 0


def _number(value: Literal) -> float:
    assert isinstance(value, (int, float))  # noqa: S101 - the caller chose numbers
    return float(value)
