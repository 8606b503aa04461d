"""Cases that a rule draws: sizes all over their ranges, every third case held out.

    cases=[
        Case(M=1, N=4096),                                     # what is sure to be called
        *drawn(60, M=Sizes(1, 16384), N=Sizes(256, 16384, multiple=64)),
    ]

Cases that somebody picked are round, and too few between the round ones; a tree fitted to them does
not know where one configuration gives way to the next. These are drawn at random, evenly in the
logarithm of each size, always the same; every third is held out, so that nobody picks those either.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kernelhub.errors import InputError

from .workloads import Case

_HELD_OUT = 3  # every third
_PATIENCE = 50  # draws per case wanted, after which what is kept is too rare


@dataclass(frozen=True, slots=True)
class Sizes:
    """Whole numbers from `low` to `high`, both included, as likely in each factor of two.

    Attributes:
        multiple: sizes are rounded to multiples of this.
    """

    low: int
    high: int
    multiple: int = 1

    def __post_init__(self) -> None:
        if not 0 < self.low <= self.high or self.multiple < 1 or not self._least <= self._most:
            raise InputError(
                f"{self} holds no size", hint="0 < low <= high, with a multiple between them"
            )

    @property
    def _least(self) -> int:
        return -(-self.low // self.multiple) * self.multiple

    @property
    def _most(self) -> int:
        return self.high // self.multiple * self.multiple

    def at(self, share: float) -> int:
        """The size at a share, in [0, 1), of the way from low to high by ratio."""
        exact = self.low * math.pow(self.high / self.low, share)
        return min(max(round(exact / self.multiple) * self.multiple, self._least), self._most)


def drawn(
    count: int,
    *,
    keep: Callable[..., bool] = lambda **_: True,
    **parameters: Sizes | Sequence[Any],
) -> list[Case]:
    """Distinct cases, the same at every call; every third is held out.

    Args:
        count: how many.
        keep: called with the parameters of a case; False leaves it out (too large, say).
        parameters: of the function that makes the inputs: sizes, or values to choose among, a value
            that is listed twice being twice as likely.

    Raises:
        InputError: there are not that many.
    """
    source = random.Random(0)  # noqa: S311 - the same cases everywhere, no secret
    found: dict[str, Case] = {}
    for _ in range(_PATIENCE * count):
        if len(found) == count:
            break
        values: dict[str, Any] = {
            name: given.at(share) if isinstance(given, Sizes) else given[int(share * len(given))]
            for name, given in parameters.items()
            for share in (source.random(),)
        }
        case = Case(held_out=len(found) % _HELD_OUT == _HELD_OUT - 1, **values)
        if case.name not in found and keep(**values):
            found[case.name] = case
    if len(found) < count:
        raise InputError(
            f"only {len(found)} of {count} cases can be drawn",
            hint="ask for fewer, widen the sizes, or keep more of them",
        )
    return list(found.values())
