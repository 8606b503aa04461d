"""Points between those that were measured."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kernelhub.formats.tree import Literal

from .terms import kinds, sizes

_TRIES = 50
_Features = Mapping[str, Literal]


@dataclass(frozen=True, slots=True)
class _Range:
    """Of a positive number; whole ones are multiples of `step`, which is 0 for others."""

    low: float
    high: float
    step: int

    def at(self, share: float) -> float | int:
        """Evenly by ratio: 0.0 is the low end, 1.0 the high one."""
        value = self.low * math.pow(self.high / self.low, share)
        if not self.step:
            return value
        whole = round(value / self.step) * self.step
        return min(max(whole, int(self.low)), int(self.high))


def draw(
    features: Sequence[_Features], count: int, source: random.Random
) -> list[dict[str, Literal]]:
    """Points whose sizes lie evenly, by ratio, in the ranges of those that were measured.

    Each takes what is no positive number from a measured point. A size that never falls while
    another rises follows that one (a number of blocks, say); the others are drawn apart from each
    other, as multiples of what all measured ones are multiples of. No point is larger, by the
    product of its sizes, than the largest that was measured. Where sizes are never large together
    hardly any is that small: after `_TRIES` a measured point is taken as it is.

    Args:
        features: of the measured points, at least one.
    """
    ranges, followers = _roles(features)
    largest = max(_product(row, ranges) for row in features)
    drawn: list[dict[str, Literal]] = []
    for _ in range(count):
        for _ in range(_TRIES):
            point = dict(source.choice(features))
            for name, between in ranges.items():
                point[name] = between.at(source.random())
            # A range's ends are measured, but not all of its corners.
            if _product(point, ranges) <= largest:
                break
        else:
            point = dict(source.choice(features))
        for name, leader in followers.items():
            nearest = min(features, key=lambda row: _apart(row[leader], point[leader]))
            point[name] = nearest[name]
        drawn.append(point)
    return drawn


def _roles(features: Sequence[_Features]) -> tuple[dict[str, _Range], dict[str, str]]:
    """The sizes that are drawn with their ranges; those that follow one of them with its name."""
    known = kinds(features)
    ranges: dict[str, _Range] = {}
    followers: dict[str, str] = {}
    for name in sizes(features):
        values = [_number(row[name]) for row in features]
        leader = next((other for other in ranges if _follows(features, name, other)), None)
        if leader is None:
            step = math.gcd(*map(int, values)) if known[name] == "int" else 0
            ranges[name] = _Range(min(values), max(values), step)
        else:
            followers[name] = leader
    return ranges, followers


def _follows(features: Sequence[_Features], name: str, leader: str) -> bool:
    pairs = sorted({(_number(row[leader]), _number(row[name])) for row in features})
    ahead = [leading for leading, _ in pairs]
    values = [value for _, value in pairs]
    return len(set(ahead)) == len(pairs) and values == sorted(values)


def _product(point: _Features, names: Iterable[str]) -> float:
    return math.prod(_number(point[name]) for name in names)


def _apart(a: Literal, b: Literal) -> float:
    return abs(math.log(_number(a) / _number(b)))


def _number(value: Literal) -> float:
    assert isinstance(value, (int, float))  # noqa: S101 - sizes are numbers
    return float(value)
