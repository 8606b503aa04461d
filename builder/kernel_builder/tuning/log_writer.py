"""Appending to the measurement log: one writer at a time, each line on disk before the next."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from kernel_builder.tuning.log import Context, Measurements
from kernel_builder.tuning.matrix import Point
from kernel_builder.tuning.runner import Outcome
from kernelhub.errors import StoreError, TuningError


class Writer:
    """Appends to a measurement file. One writer at a time, held by a lock beside the file."""

    def __init__(self, path: Path) -> None:
        self.measurements = Measurements.read(path)
        self._path = path
        self._file: Any = None

    @contextlib.contextmanager
    def open(self) -> Iterator[Writer]:
        """Hold the file for writing.

        Raises:
            TuningError: another process is tuning this kernel for this device.
            StoreError: the disk refuses.
        """
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self._path.with_name(f".{self._path.name}.lock"), timeout=0)
            with lock:
                # Read under the lock: another writer may have finished since __init__.
                self.measurements = Measurements.read(self._path)
                with self._path.open("ab") as file:
                    if self.measurements.torn:
                        _cut_torn_line(self._path)
                    self._file = file
                    yield self
        except Timeout as error:
            raise TuningError(
                f"another process is writing {self._path}",
                hint="wait for it, or tune another kernel with --kernel",
            ) from error
        except OSError as error:
            raise StoreError(
                f"cannot write {self._path}: {error.strerror or error}",
                hint="nothing measured so far is lost; free space and run again with --resume",
            ) from error
        finally:
            self._file = None

    def context(self, context: Context) -> None:
        """Make a context known, and the newest."""
        self._append([{"context": context.id, **context.to_json()}])

    def points(self, points: Iterable[Point]) -> None:
        """Make points known, or change their weights and flags."""
        rows = []
        for point in points:
            if self.measurements.points.get(point.id) != point:
                row = asdict(point)
                rows.append({"point": row.pop("id"), **row})
        self._append(rows)

    def results(
        self, context: str, point: str, outcomes: Iterable[Outcome], *, pruned: bool = False
    ) -> None:
        """What came out on one point, written with one flush to the disk."""
        self._append(
            [{"result": [context, point], "config": dict(o.config), **_finding(o),
              **({"pruned": True} if pruned or o.pruned else {})}
             for o in outcomes if o.samples or o.reason is not None]
        )  # fmt: skip

    def _append(self, rows: list[dict[str, Any]]) -> None:
        if not rows:
            return
        lines = [json.dumps(row, separators=(",", ":")).encode() + b"\n" for row in rows]
        self._file.write(b"".join(lines))
        self._file.flush()
        os.fsync(self._file.fileno())
        for row in rows:
            self.measurements.add(row)


def _finding(outcome: Outcome) -> dict[str, Any]:
    if outcome.reason is not None:
        return {"reason": outcome.reason, "detail": outcome.detail[:500]}
    return {"samples": [float(f"{s:.6g}") for s in outcome.samples]}


def _cut_torn_line(path: Path) -> None:
    """Remove what follows the last newline: the line that a crash cut short."""
    with path.open("rb+") as file:
        data = file.read()
        file.truncate(data.rfind(b"\n") + 1)
