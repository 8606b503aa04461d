"""Configurations that a tunable may run with: a list, or a space of parameters and conditions.

The values of a parameter are a plain tuple, so a space can be written without importing anything
from here: `choices` and `powers_of_two` only say what is meant.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kernelhub.errors import InputError
from kernelhub.formats.tree import Config, Literal

Condition = Callable[[Config], bool]


def choices(*values: Literal) -> tuple[Literal, ...]:
    """A parameter that takes one of these values."""
    return values


def powers_of_two(low: int, high: int) -> tuple[int, ...]:
    """A parameter that takes every power of two from `low` to `high`, both included.

    Raises:
        InputError: a bound is not a power of two of at least 1, or `low` exceeds `high`.
    """
    if low < 1 or low > high or low & (low - 1) or high & (high - 1):
        raise InputError(
            f"powers_of_two({low}, {high}): both bounds must be powers of two, the lower first"
        )
    return tuple(1 << k for k in range(low.bit_length() - 1, high.bit_length()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """Every combination of the parameters' values for which all conditions hold.

    Attributes:
        parameters: name to its values, in the order in which they vary.
        conditions: each takes a whole configuration and says whether it may run.
    """

    parameters: Mapping[str, tuple[Literal, ...]]
    conditions: tuple[Condition, ...] = ()

    @property
    def size(self) -> int:
        """Number of combinations before conditions."""
        total = 1
        for values in self.parameters.values():
            total *= len(values)
        return total

    def admits(self, config: Config) -> bool:
        """Whether the configuration is one of this space."""
        return (
            config.keys() == self.parameters.keys()
            and all(_contains(self.parameters[name], value) for name, value in config.items())
            and all(condition(config) for condition in self.conditions)
        )

    def __iter__(self) -> Iterator[dict[str, Literal]]:
        names = tuple(self.parameters)
        for values in itertools.product(*self.parameters.values()):
            config = dict(zip(names, values, strict=True))
            if all(condition(config) for condition in self.conditions):
                yield config


def _contains(values: Sequence[Literal], value: Literal) -> bool:
    return any(type(value) is type(other) and value == other for other in values)


def config_key(config: Config) -> tuple[tuple[str, str, Literal], ...]:
    """A hashable identity of a configuration that tells 1, 1.0 and True apart."""
    return tuple((name, type(value).__name__, value) for name, value in sorted(config.items()))
