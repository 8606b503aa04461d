"""Files on their way to a Hub: open, watched, and never whole in memory if they are large."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from kernelhub.errors import IntegrityError

_IN_MEMORY = 1 << 18  # files up to this size are read whole, so that few files are open at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """A file to commit: its place in the repository, its bytes on disk or in memory, its hash."""

    path: str
    source: Path | bytes
    size: int
    sha256: str


class Observed(io.BufferedReader):
    """A file that tells how much of it was read."""

    watcher: Callable[[int], None] | None = None

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        if self.watcher is not None:
            self.watcher(len(data))
        return data


def observe(streams: Sequence[BinaryIO], progress: Callable[[int], None] | None) -> None:
    """Let `progress` hear of every read of the large ones, from one thread at a time."""
    if progress is None:
        return
    lock = threading.Lock()  # huggingface_hub sends several files at a time

    def watcher(count: int) -> None:
        with lock:
            progress(count)

    for stream in streams:
        if isinstance(stream, Observed):
            stream.watcher = watcher


def open_upload(upload: Upload) -> BinaryIO:
    """An open binary file: huggingface_hub then streams it, and needs no Xet service.

    Raises:
        IntegrityError: the file is gone.
    """
    if isinstance(upload.source, bytes):
        return io.BytesIO(upload.source)
    try:
        if upload.size <= _IN_MEMORY:
            return io.BytesIO(upload.source.read_bytes())
        return Observed(upload.source.open("rb", buffering=0))
    except OSError as error:
        raise IntegrityError(
            f"cannot read {upload.source}: {error.strerror}",
            hint="run `kernel-builder build`, then publish again",
        ) from error
