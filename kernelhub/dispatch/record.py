"""`kernelhub.record`: which launches a real application makes, with counts and no contents.

    with kernelhub.record("launches.jsonl"):
        serve()

or `KERNELHUB_RECORD=launches.jsonl` for a whole process. The file has one JSON object a line: a
launch and how often it was seen since the last line for it. Lines are appended whole, so many
processes may share a file, and a killed one loses at most its counts since the last flush;
`read_record` adds the counts up.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kernelhub.errors import FormatError, Problem, StoreError
from kernelhub.settings import current

from .adapter import Call, Tunable
from .capturing import add_watcher, remove_watcher
from .launch import Launch

logger = logging.getLogger(__name__)

SCHEMA = 1
FLUSH_SECONDS = 10.0


@contextmanager
def record(path: str | Path) -> Iterator[Recorder]:
    """Append every launch of a tunable inside the block, in any thread, to a file.

    Raises:
        StoreError: the file cannot be written.
    """
    recorder = Recorder(Path(path))
    recorder.flush()  # an unusable path is found now, not after an hour of traffic
    add_watcher(recorder)
    try:
        yield recorder
    finally:
        remove_watcher(recorder)
        recorder.flush()


_lock = threading.Lock()
_process: list[Recorder] = []


def start_from_settings() -> None:
    """Record this process if `KERNELHUB_RECORD` asks for it; once, however often it is called."""
    path = current().record
    with _lock:
        if path is None or _process:
            return
        _process.append(Recorder(path))
    add_watcher(_process[0])
    atexit.register(_process[0]._flush_or_warn)


class Recorder:
    """Counts launches and appends them to a file. A `capturing.Watcher`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._counts: dict[tuple[Any, ...], int] = {}
        self._launches: dict[tuple[Any, ...], Launch] = {}
        self._flushed = time.monotonic()
        self._warned = False

    def saw(self, tunable: Tunable, call: Call) -> None:
        """Count one launch. The facts are worked out only the first time that it is seen."""
        key = (tunable.name, *map(_cheap_key, call.arguments.values()))
        with self._lock:
            known = key in self._launches
            self._counts[key] = self._counts.get(key, 0) + 1
            if not known:
                self._launches[key] = tunable.facts(call)
        if not known or time.monotonic() - self._flushed > FLUSH_SECONDS:
            self._flush_or_warn()

    def flush(self) -> None:
        """Append what was counted since the last time.

        Raises:
            StoreError: the file cannot be written; the counts are kept for the next time.
        """
        with self._lock:
            counts, self._counts = self._counts, {}
            self._flushed = time.monotonic()
            try:
                _append(self.path, [(self._launches[key], n) for key, n in counts.items()])
            except OSError as error:
                self._counts, self._flushed = counts, time.monotonic()
                raise StoreError(
                    f"cannot record launches to {self.path}: {error.strerror}",
                    hint="choose a writable path, or unset KERNELHUB_RECORD",
                ) from error

    def _flush_or_warn(self) -> None:
        """A full disk must not stop the application that is being watched."""
        try:
            self.flush()
        except StoreError as error:
            if not self._warned:
                logger.warning("%s; counting goes on", error.message)
            self._warned = True


def _append(path: Path, counted: list[tuple[Launch, int]]) -> None:
    lines = [
        json.dumps({"v": SCHEMA, "count": n, **launch.to_json()}, separators=(",", ":"))
        for launch, n in counted
    ]
    # The line break in front keeps what a killed writer left half done on a line of its own.
    data = "".join(f"\n{line}\n" for line in lines).encode()
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        while data:
            data = data[os.write(handle, data) :]
    finally:
        os.close(handle)


def read_record(path: str | Path) -> list[tuple[Launch, int]]:
    """The distinct launches of a record file and their counts, most frequent first.

    A line that a killed process left half written is passed over; it ends without being JSON.

    Raises:
        StoreError: the file cannot be read.
        FormatError: a line is JSON but not a recorded launch, or of a newer format.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error
    counts: dict[Launch, int] = {}
    problems: list[Problem] = []
    for number, line in enumerate(lines, start=1):
        try:
            data = json.loads(line) if line else None
        except (ValueError, RecursionError):
            continue
        if data is None:
            continue
        try:
            launch, count = _read_line(data)
            counts[launch] = counts.get(launch, 0) + count
        except ValueError as error:
            problems.append(Problem(message=str(error), path=str(path), line=number))
    if problems:
        raise FormatError(str(path), problems)
    return sorted(counts.items(), key=lambda item: (-item[1], item[0].key))


def _read_line(data: Any) -> tuple[Launch, int]:
    if not isinstance(data, dict) or data.get("v") != SCHEMA:
        raise ValueError(f"not a launch recorded in format {SCHEMA}")
    count = data.get("count")
    if type(count) is not int or count < 1:
        raise ValueError("count must be a positive integer")
    return Launch.from_json(data), count


def _cheap_key(value: Any) -> Any:
    """Tells apart what `describe` tells apart, at a fraction of its cost."""
    pointer = getattr(value, "data_ptr", None)
    if pointer is not None:
        return value.dtype, value.shape, value.stride(), pointer() & 15 == 0, value.device.type
    if hasattr(value, "aval"):  # a JAX array or tracer: to be neither read nor kept
        return type(value), value.dtype, value.shape
    if isinstance(value, float):
        return float, repr(value)
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return type(value), value
