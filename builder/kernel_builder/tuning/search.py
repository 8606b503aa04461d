"""Which configurations of a large space to try next: shared knowledge first, then local moves.

A space of up to `Limits.enumerate` configurations is tried whole. A larger one is searched: the
author's default, what was best on neighbouring points, an even spread over the space, then
generations of neighbours of the best: one parameter moved by one step, or two at once taken over
from another good one. Everything is deterministic.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kernel_builder.tuning.matrix import Cell, config_key
from kernelhub.formats.tree import Config, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How far to look.

    Attributes:
        enumerate: spaces up to this size are tried whole.
        spread: configurations that are tried all over a larger space.
        seeds: configurations taken over from neighbouring points.
        parents: how many of the best get neighbours in each generation.
        generation: most configurations in one generation.
        most: most configurations on one point.
    """

    enumerate: int = 96
    spread: int = 24
    seeds: int = 8
    parents: int = 3
    generation: int = 16
    most: int = 128


@dataclass(slots=True)
class Space:
    """The configurations that the author admits for one point, as a graph of single steps."""

    configs: Sequence[Config]
    _by_key: dict[str, Config] = field(init=False)
    _values: dict[str, list[Literal]] = field(init=False)

    def __post_init__(self) -> None:
        self._by_key = {config_key(c): c for c in self.configs}
        names = sorted({name for c in self.configs for name in c})
        self._values = {
            name: sorted({c[name] for c in self.configs if name in c}, key=_order) for name in names
        }

    def admits(self, config: Config) -> bool:
        """Whether the author admits it here."""
        return config_key(config) in self._by_key

    def neighbours(self, config: Config) -> list[Config]:
        """Admitted configurations that differ in one parameter: by one step where it is a number,
        by any value where it is a category."""
        found = []
        for name, value in sorted(config.items()):
            values = self._values[name]
            position = values.index(value)
            near = values[max(0, position - 1) : position + 2] if _is_number(value) else values
            for other in near:
                key = config_key({**config, name: other})
                if other != value and key in self._by_key:
                    found.append(self._by_key[key])
        return found

    def crosses(self, a: Config, b: Config) -> list[Config]:
        """Admitted configurations that are `a` with two parameters of `b`."""
        differing = sorted(n for n in a if n in b and a[n] != b[n])
        pairs = [(x, y) for i, x in enumerate(differing) for y in differing[i + 1 :]]
        keys = [config_key({**a, x: b[x], y: b[y]}) for x, y in pairs]
        return [self._by_key[k] for k in keys if k in self._by_key]

    def spread(self, count: int) -> list[Config]:
        """An even, fixed sample."""
        return sorted(self.configs, key=_shuffled)[:count]


def first_batch(
    space: Space, default: Config, neighbours: Sequence[Config], limits: Limits
) -> list[Config]:
    """What to try first on a point.

    Args:
        neighbours: what was good on similar points, the best first.
    """
    if len(space.configs) <= limits.enumerate:
        return list(space.configs)
    seeds = [c for c in neighbours if space.admits(c)][: limits.seeds]
    own = [default] if space.admits(default) else []
    return _unique([*own, *seeds, *space.spread(limits.spread)])


def next_batch(space: Space, known: Mapping[str, Cell], limits: Limits) -> list[Config]:
    """The next generation, empty when nothing is left to try.

    Args:
        known: what was found on this point, by configuration key.
    """
    if len(space.configs) <= limits.enumerate or len(known) >= limits.most:
        return []
    tried = [c for c in space.configs if config_key(c) in known]
    timed = [c for c in tried if known[config_key(c)].ms is not None]
    best = sorted(timed, key=lambda c: known[config_key(c)].ms or 0.0)[: limits.parents]
    moves = [n for parent in best for n in space.neighbours(parent)]
    moves += [n for a in best for b in best if a is not b for n in space.crosses(a, b)]
    if not timed:  # nothing has worked yet: look elsewhere
        moves = space.spread(len(known) + limits.generation)
    fresh = [c for c in _unique(moves) if config_key(c) not in known]
    return fresh[: min(limits.generation, limits.most - len(known))]


def nearest_points(
    features: Mapping[str, Literal], others: Sequence[Mapping[str, Literal]]
) -> list[int]:
    """Indices of other points, the most similar first: log distance of sizes, then categories."""

    def distance(other: Mapping[str, Literal]) -> float:
        total = 0.0
        for name in features.keys() | other.keys():
            a, b = features.get(name), other.get(name)
            if _is_number(a) and _is_number(b) and a > 0 and b > 0:  # type: ignore[operator]
                total += abs(math.log2(a / b))  # type: ignore[operator]
            elif a != b:
                total += 2.0
        return total

    return sorted(range(len(others)), key=lambda i: (distance(others[i]), i))


def _unique(configs: Sequence[Config]) -> list[Config]:
    return list({config_key(c): c for c in configs}.values())


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _order(value: Literal) -> tuple[int, float, str]:
    return (0, float(value), "") if _is_number(value) else (1, 0.0, str(value))  # type: ignore[arg-type]


def _shuffled(config: Config) -> str:
    return hashlib.sha256(config_key(config).encode()).hexdigest()
