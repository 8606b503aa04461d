"""Files on their way to a Hub: open, watched, and never whole in memory if they are large."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from kernelhub.errors import IntegrityError

if TYPE_CHECKING:
    from huggingface_hub import CommitOperationAdd

_IN_MEMORY = 1 << 18  # files up to this size are read whole, so that few files are open at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """A file to commit: its place in the repository, its bytes on disk or in memory, its hash."""

    path: str
    source: Path | bytes
    size: int
    sha256: str


class Observed(io.BufferedReader):
    """A file that tells how much of it was read, and asks before whether it still may be."""

    watcher: Callable[[int], None] | None = None
    check: Callable[[], None] | None = None

    def read(self, size: int | None = -1, /) -> bytes:
        if self.check is not None:
            self.check()
        data = super().read(size)
        if self.watcher is not None:
            self.watcher(len(data))
        return data


def watcher_of(progress: Callable[[int], None]) -> Callable[[int], None]:
    """The same callback, called by one thread at a time: several files are sent at once."""
    lock = threading.Lock()

    def watcher(count: int) -> None:
        with lock:
            progress(count)

    return watcher


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


def make_additions(
    uploads: Sequence[Upload],
    progress: Callable[[int], None] | None,
    check: Callable[[], None],
) -> list[CommitOperationAdd]:
    """huggingface_hub's operations for the uploads.

    The library sends several files at once and keeps one operation per content, so files of equal
    bytes would share one handle between its threads: each sending opens a handle of its own.

    Args:
        progress: told of bytes of large files as they are sent, by one thread at a time.
        check: raises once nothing more may be sent, so that what was given up does not go on.

    Raises:
        IntegrityError: a file is gone, or its bytes are not those of the upload's hash.
    """
    from huggingface_hub import CommitOperationAdd

    watcher = None if progress is None else watcher_of(progress)

    class Addition(CommitOperationAdd):
        upload: Upload

        @contextmanager
        def as_file(self, with_tqdm: bool = False) -> Iterator[BinaryIO]:
            check()
            with open_upload(self.upload) as stream:
                if isinstance(stream, Observed):
                    stream.watcher, stream.check = watcher, check
                yield stream

    additions: list[CommitOperationAdd] = []
    for upload in uploads:
        with open_upload(upload) as stream:
            addition = Addition(upload.path, stream)
        addition.upload = upload
        if addition.upload_info.sha256.hex() != upload.sha256:
            raise IntegrityError(
                f"{upload.path} changed while it was published",
                hint="run `kernel-builder build`, then publish again",
            )
        additions.append(addition)
    return additions


def shared_contents(additions: Sequence[CommitOperationAdd]) -> list[CommitOperationAdd]:
    """One addition for each large content that several files have: what to send before the rest."""
    of_content: dict[bytes, list[Any]] = {}
    for addition in additions:
        if addition.upload_info.size > _IN_MEMORY:
            of_content.setdefault(addition.upload_info.sha256, []).append(addition)
    return [same[0] for same in of_content.values() if len(same) > 1]
