"""The goal of the tree that is there already: what was asked of it, which misses it admits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kernel_builder.tuning.build import Miss, Report
from kernel_builder.tuning.fit import FitOptions
from kernelhub.errors import FormatError, StoreError
from kernelhub.formats import evidence
from kernelhub.formats.evidence import parse_evidence

_ROUNDED = 1.001  # evidence holds six digits


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The goal that a command names; what it leaves out stays as it is in the tree that is there.

    Attributes:
        max_slowdown, max_configs: see `FitOptions`; None: the tree's own, else the default.
    """

    max_slowdown: float | None = None
    max_configs: int | None = None

    def options(self, known: evidence.Goal | None) -> FitOptions:
        """What to fit with, given the goal of the tree that is there."""
        default = FitOptions()
        own = (default.max_slowdown, default.max_configs)
        if known is not None:
            own = (known.max_slowdown, known.max_configs)
        return replace(
            default,
            max_slowdown=own[0] if self.max_slowdown is None else self.max_slowdown,
            max_configs=own[1] if self.max_configs is None else self.max_configs,
        )


def goal_beside(tree: Path) -> evidence.Goal | None:
    """What the evidence beside a tree says was asked of it; None if it cannot be read: a tree that
    is built anew needs nothing of the old one.
    """
    path = tree.with_suffix(".json")
    try:
        return parse_evidence(path.read_bytes(), str(path)).goal
    except (OSError, FormatError, StoreError):
        return None


def with_recorded(report: Report, goal: evidence.Goal | None) -> Report:
    """The report, with those of its misses marked that the goal's record tells of."""
    if goal is None:
        return report
    return replace(report, recorded=tuple(m for m in report.misses if _told(m, goal.misses)))


def _told(miss: Miss, told: Sequence[evidence.Miss]) -> bool:
    """Whether a miss is in the record and has not become worse."""
    return any(
        miss.where == old.where
        and (
            miss.slowdown is None
            or old.slowdown is None
            or miss.slowdown <= old.slowdown * _ROUNDED
        )
        for old in told
    )
