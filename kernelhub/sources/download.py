"""One file of a kernel: streamed to disk, hashed on the way, continued where it was cut short.

Bytes go to `<name>.part` beside the target, survive the process, and get the target's name once
they are known to be the right ones.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kernelhub.disk import translated
from kernelhub.errors import HubError, HubUnavailable, IntegrityError
from kernelhub.hashing import CHUNK, Hasher, hash_file

from . import RemoteFile
from .refusals import TransientError
from .transport import Transport

logger = logging.getLogger(__name__)

_CUT = "try again: what has arrived is kept; a proxy or mirror on the way may be at fault"
_CONTENT_RANGE = re.compile(r"bytes (\d+)-")


def download(
    transport: Transport, url: str, file: RemoteFile, target: Path, arrived: Callable[[int], None]
) -> None:
    """Bring `file` to `target`, checked against its id.

    Args:
        transport: how to ask.
        url: where from.
        file: what it must be.
        target: where to; what is there already whole is kept.
        arrived: told of bytes as they arrive.

    Raises:
        IntegrityError: the bytes were wrong, and were wrong again after a second download.
        HubUnavailable, HubAuthError, ...: as `Transport.get`.
        StoreError: the disk failed.
    """
    with translated(target, file.size):
        if target.is_file():
            if hash_file(target, file.id.algorithm) == file.id.value:
                arrived(file.size)
                return
            target.unlink()
        target.parent.mkdir(parents=True, exist_ok=True)
    part = _Part(target.with_name(f"{target.name}.part"), file, arrived)
    for fresh in (False, True):
        part.open(restart=fresh)
        try:
            _fill(transport, url, part, fresh=fresh)
            if part.is_right():
                part.finish(target)
                return
        except HubError as error:
            if error.status != 416:  # the file ends before the size that is listed
                raise
        finally:
            part.close()
        logger.warning("%s: wrong bytes arrived%s", url, "" if fresh else "; downloading once more")
    part.discard()
    raise IntegrityError(
        f"{url} delivers other bytes than the Hub lists",
        faults={file.path: f"is not {file.id.algorithm} {file.id.value}, {file.size} bytes"},
        hint="a proxy or mirror on the way may be at fault; HF_ENDPOINT names the Hub",
    )


class _Part:
    """The bytes of one file that have arrived, and their hash so far."""

    def __init__(self, path: Path, file: RemoteFile, arrived: Callable[[int], None]) -> None:
        self.path = path
        self.file = file
        self.size = 0
        self._arrived = arrived
        self._reported = 0
        self._hasher = Hasher(file.id.algorithm, file.size)
        self._stream: Any = None

    def open(self, *, restart: bool) -> None:
        with translated(self.path, self.file.size):
            self._stream = self.path.open("wb" if restart else "a+b")
            self._rewind()
            if restart:
                return
            self._stream.seek(0)
            while piece := self._stream.read(CHUNK):
                self._hasher.update(piece)
                self.size += len(piece)
        if self.size > self.file.size:
            self.restart()
        self._report()

    def _rewind(self) -> None:
        self.size = 0
        self._hasher = Hasher(self.file.id.algorithm, self.file.size)

    def restart(self) -> None:
        with translated(self.path, self.file.size):
            self._stream.truncate(0)
            self._stream.seek(0)
        self._rewind()

    def write(self, piece: bytes) -> None:
        with translated(self.path, self.file.size - self.size):
            self._stream.write(piece)
        self._hasher.update(piece)
        self.size += len(piece)
        self._report()

    def _report(self) -> None:
        if self.size > self._reported:
            self._arrived(self.size - self._reported)
            self._reported = self.size

    def is_right(self) -> bool:
        return self.size == self.file.size and self._hasher.hexdigest() == self.file.id.value

    def close(self) -> None:
        with translated(self.path, self.file.size - self.size):
            self._stream.close()

    def finish(self, target: Path) -> None:
        with translated(target, self.file.size):
            self._stream.flush()
            os.fsync(self._stream.fileno())
            self._stream.close()
            self.path.replace(target)

    def discard(self) -> None:
        with translated(self.path):
            self.path.unlink(missing_ok=True)


def _fill(transport: Transport, url: str, part: _Part, *, fresh: bool) -> None:
    """Ask until the part has its full size, or more than that, which is wrong too."""

    def headers() -> Mapping[str, str]:
        extra = {"Accept-Encoding": "identity"}
        if fresh:
            extra["Cache-Control"] = "no-cache"
        if part.size:
            extra["Range"] = f"bytes={part.size}-"
        return extra

    def consume(response: Any) -> None:
        if part.size and not _continues(response, part.size):
            part.restart()
        for piece in response.iter_bytes():  # as it comes: nothing waits in a buffer to be lost
            transport.check()
            part.write(piece)
            if part.size > part.file.size:
                return
        if part.size < part.file.size:
            message = f"{url} stops after {part.size} of {part.file.size} bytes"
            raise TransientError(HubUnavailable(message, url=url, hint=_CUT))

    if part.size < part.file.size:
        transport.get(url, consume, headers=headers, progress=lambda: part.size)


def _continues(response: Any, position: int) -> bool:
    """Whether an answer to a range request starts where it was asked to, not at the beginning."""
    if response.status_code != 206:
        return False
    start = _CONTENT_RANGE.match(response.headers.get("Content-Range", ""))
    if start is None or int(start[1]) != position:
        url = str(response.url)
        raise HubUnavailable(f"{url} answers another range than was asked for", url=url, hint=_CUT)
    return True
