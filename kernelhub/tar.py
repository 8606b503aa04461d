"""The narrowest tar that does: plain files, short names, nothing about owners or times.

Readers of the world read what this writes; this reads only what it would have written. A header of
another kind (links, devices, extended headers, sparse files) is refused, never interpreted.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from typing import IO

from .errors import IntegrityError
from .hashing import CHUNK

BLOCK = tarfile.BLOCKSIZE
_END = bytes(BLOCK)


def header(name: str, size: int) -> bytes:
    """The header of a member; its content, padded to whole blocks, follows."""
    info = tarfile.TarInfo(name)
    info.size = size
    info.mode = 0o644
    return info.tobuf(tarfile.USTAR_FORMAT, "ascii", "strict")


def padding(size: int) -> bytes:
    """What follows content of `size` bytes."""
    return bytes(-size % BLOCK)


END = _END * 2


class Member:
    """One member while it is read; read it to its end before the next."""

    def __init__(self, name: str, size: int, stream: IO[bytes]) -> None:
        self.name = name
        self.size = size
        self._left = size
        self._stream = stream

    def pieces(self) -> Iterator[bytes]:
        """Its content in pieces.

        Raises:
            IntegrityError: the file ends before it does.
        """
        while self._left:
            piece = self._stream.read(min(CHUNK, self._left))
            if not piece:
                raise IntegrityError(f"the bundle is cut short inside {self.name}")
            self._left -= len(piece)
            yield piece
        pad = self._stream.read(-self.size % BLOCK)
        if len(pad) != -self.size % BLOCK or pad.strip(b"\0"):
            raise IntegrityError(f"the bundle is cut short or damaged after {self.name}")


def members(stream: IO[bytes]) -> Iterator[Member]:
    """The members of a tar.

    Raises:
        IntegrityError: it is none, is cut short, or holds anything but plain files.
    """
    while True:
        block = stream.read(BLOCK)
        if block == _END:
            if stream.read(BLOCK) != _END:
                raise IntegrityError("the bundle is cut short at its end")
            return
        if len(block) != BLOCK:
            raise IntegrityError("the bundle is cut short, or is no tar file")
        try:
            info = tarfile.TarInfo.frombuf(block, "ascii", "strict")
        except (tarfile.HeaderError, UnicodeDecodeError, ValueError) as error:
            raise IntegrityError(f"the bundle is damaged: {error}") from error
        if info.type != tarfile.REGTYPE or info.linkname or info.size < 0:
            raise IntegrityError(f"the bundle holds {info.name!r}, which is no plain file")
        yield Member(info.name, info.size, stream)
