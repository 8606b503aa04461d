"""What was measured: points x configurations -> cells. Plain values, no I/O.

The fit, the evaluation, the reports and the benchmarks all read this one form.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kernelhub.formats.tree import Config, Literal

REASONS = (
    "compile_error",  # the compiler refused it
    "out_of_resources",  # shared memory, registers or threads: the device refused to launch it
    "wrong_result",  # ran, and its output differs from the reference
    "fault",  # illegal memory access, or the worker died
    "timeout",  # compiled or ran for too long
    "unstable",  # its time could not be measured well enough
)


def config_key(config: Config) -> str:
    """One text for one configuration, whatever the order of its entries."""
    return _text(tuple(sorted((name, value, type(value)) for name, value in config.items())))


@functools.lru_cache(maxsize=1 << 16)  # a fit asks a hundred thousand times, of some dozens
def _text(items: tuple[tuple[str, Literal, type], ...]) -> str:
    return json.dumps({name: value for name, value, _ in items}, separators=(",", ":"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One distinct launch of one tunable.

    Attributes:
        id: content hash of the launch (kernel, dtypes, shapes, strides, scalars).
        features: what a tree may test at dispatch.
        weight: how much this point counts; any positive number, only ratios matter.
        held_out: not used to fit, only to evaluate.
        case: name of the workload case whose call makes this launch.
    """

    id: str
    features: Mapping[str, Literal]
    weight: float = 1.0
    held_out: bool = False
    case: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One configuration on one point: a time, or why there is none.

    Attributes:
        ms: device time of one launch, see `summary`; None where it failed.
        error: by how much that may be off, in ms, as far as the samples tell.
        samples: how many samples stand behind it.
        reason: one of REASONS where it failed.
        detail: the failing tool's own words, shortened.
        pruned: whether dispatch passes this configuration over on this point, since the author's
            pruning drops it or the launch itself refuses it. It was measured because it matters
            elsewhere; on this point it is no candidate.
    """

    ms: float | None = None
    error: float = 0.0
    samples: int = 0
    reason: str | None = None
    detail: str = ""
    pruned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """All cells of one kernel on one device under one measuring policy.

    `cells` maps (point id, configuration key) to what was found there; a pair that is absent was
    not measured.
    """

    kernel: str
    points: tuple[Point, ...]
    configs: tuple[Config, ...]
    cells: Mapping[tuple[str, str], Cell] = field(default_factory=dict)

    def cell(self, point: Point, config: Config) -> Cell | None:
        """What was measured there, None if nothing was."""
        return self.cells.get((point.id, config_key(config)))

    def best(self, point: Point) -> float | None:
        """The fastest known time on a point in ms, None where no candidate works."""
        cell = self.best_cell(point)
        return None if cell is None else cell.ms

    def best_cell(self, point: Point) -> Cell | None:
        """The cell of the fastest candidate on a point, None where none works."""
        cells = (self.cell(point, config) for config in self.configs)
        timed = [c for c in cells if c is not None and c.ms is not None and not c.pruned]
        return min(timed, key=lambda c: c.ms or math.inf, default=None)

    def runs(self, point: Point, ranking: Sequence[Config]) -> Config:
        """The configuration that runs there as dispatch takes them: the first that it does not
        pass over; where it passes over all of them, the first."""
        for config in ranking:
            cell = self.cell(point, config)
            if cell is None or not cell.pruned:
                return config
        return ranking[0]

    def slowdown(self, point: Point, config: Config) -> float | None:
        """Time against the best known: 1.0 is the best, inf a failure, None not measured."""
        cell = self.cell(point, config)
        best = self.best(point)
        if cell is None or best is None:
            return None if cell is None else math.inf
        return math.inf if cell.ms is None else cell.ms / best

    def split(self) -> tuple[Matrix, Matrix]:
        """(points to fit on, points held out)."""
        return (
            self.only([p for p in self.points if not p.held_out]),
            self.only([p for p in self.points if p.held_out]),
        )

    def only(self, points: Sequence[Point]) -> Matrix:
        """The same measurements, restricted to some points."""
        return Matrix(
            kernel=self.kernel, points=tuple(points), configs=self.configs, cells=self.cells
        )


def geomean(values: Sequence[float], weights: Sequence[float] | None = None) -> float:
    """Weighted geometric mean of positive numbers; inf if one is, nan of nothing."""
    if not values:
        return math.nan
    if any(math.isinf(v) for v in values):
        return math.inf
    weights = [1.0] * len(values) if weights is None else weights
    total = math.fsum(weights)
    return math.exp(
        math.fsum(w * math.log(v) for v, w in zip(values, weights, strict=True)) / total
    )
