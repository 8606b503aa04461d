"""What a run is to measure, within which limits, and how it ended. Plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kernel_builder.tuning.log import Context
from kernel_builder.tuning.log_writer import Writer
from kernel_builder.tuning.matrix import Point
from kernel_builder.tuning.race import RaceRules
from kernel_builder.tuning.search import Limits
from kernelhub.formats.tree import Config


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """One kernel to measure.

    Attributes:
        context: what the results belong to.
        writer: the open log.
        points: where to measure, with weights.
        candidates: configurations that the author admits, by point id; the default first.
    """

    context: Context
    writer: Writer
    points: tuple[Point, ...]
    candidates: Mapping[str, Sequence[Config]]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureOptions:
    """Limits of a run.

    Attributes:
        budget: seconds from the start of the run to its end, None for as long as it takes.
        shortlist: configurations per kernel that are measured on every point in the end.
        rules: of the race on one point.
        limits: of the search in large spaces.
    """

    budget: float | None = None
    shortlist: int = 16
    rules: RaceRules = field(default_factory=RaceRules)
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How a run ended.

    Attributes:
        finished: whether every point was measured in full; False when the budget ran out.
        measured: new results written.
        reused: results that were known before the run.
        effort: of all runners together, see `Runner.effort`, and the "total" seconds of the run.
    """

    finished: bool
    measured: int
    reused: int
    effort: Mapping[str, float] = field(default_factory=dict)
