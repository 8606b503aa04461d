"""What evidence files beside a package's trees say, as far as a card tells it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .project import TUNING_FOLDER


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningRow:
    """One tunable on one device.

    Attributes:
        kernel: dotted name of the tunable below the package.
        device: the vendor's name of the device.
        shapes: number of shapes that were measured.
        slowdown: geometric mean of chosen over best time, None if the file does not say.
    """

    kernel: str
    device: str
    shapes: int
    slowdown: float | None

    @property
    def slowdown_text(self) -> str:
        return "not stated" if self.slowdown is None else f"{self.slowdown:.3f}"


def tuning_rows(package: Path) -> Iterator[TuningRow]:
    """A row for each evidence file that can be read; `check` reports those that cannot."""
    for path in sorted((package / TUNING_FOLDER).glob("*.json")):
        try:
            content = json.loads(path.read_bytes())
        except ValueError:
            continue
        row = _row(content, path)
        if row is not None:
            yield row


def _row(content: object, path: Path) -> TuningRow | None:
    return None
