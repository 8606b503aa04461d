"""What the evidence files beside a package's trees say, as far as a card tells it.

Of an evidence file only its kernel, device, summaries and goal are read: number of points and
geometric mean, below `scores` or beside the rest, and how often the goal is missed. A file that
says something else gives no row.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelhub.formats.evidence import MODELLED

from .project import TUNING_FOLDER


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningRow:
    """One tunable on one device.

    Attributes:
        kernel: dotted name of the tunable below the package.
        device: the vendor's name of the device; says so where its times are those of a model.
        fitted, held_out: number of shapes, and the geometric mean over them of chosen over best
            time; None where there are no shapes.
        goal: the most that a choice should be slower than the best; None where it is not said.
        misses: how often it is more.
    """

    kernel: str
    device: str
    fitted: tuple[int, float] | None
    held_out: tuple[int, float] | None
    goal: float | None = None
    misses: int = 0


def tuning_rows(package: Path) -> Iterator[TuningRow]:
    """A row for each evidence file in the package's folder of trees, by file name."""
    for path in sorted((package / TUNING_FOLDER).glob("*.json")):
        try:
            content = json.loads(path.read_bytes())
        except ValueError:
            continue
        match content:
            case {"kernel": str(kernel), "device": {"name": str(device)}}:
                scores = content.get("scores", content)
                policy = content.get("policy")
                goal, misses = _goal(content.get("goal"))
                modelled = isinstance(policy, dict) and policy.get("method") == MODELLED
                yield TuningRow(
                    kernel=kernel,
                    device=f"{device} (modelled, not timed)" if modelled else device,
                    fitted=_summary(scores.get("fitted", scores.get("fit"))),
                    held_out=_summary(scores.get("held_out")),
                    goal=goal,
                    misses=misses,
                )


def _goal(goal: Any) -> tuple[float | None, int]:
    match goal:
        case {"max_slowdown": int(limit) | float(limit), "misses": list(misses)}:
            return float(limit), len(misses)
    return None, 0


def _summary(scores: Any) -> tuple[int, float] | None:
    match scores:
        case {"points": int(points), "geomean": int(mean) | float(mean)} if points:
            return points, float(mean)
    return None
