"""Content ids of files and how they are computed, in pieces. A leaf."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class FileId:
    """What one file must be: `algorithm` is "sha256", "sha512" or "git-sha1", `value` its hex."""

    algorithm: str
    value: str


class Hasher:
    """Hashes bytes as they come; `size`, of the whole, is needed only by git's blob ids."""

    def __init__(self, algorithm: str, size: int) -> None:
        if algorithm == "git-sha1":
            self._hash: Any = hashlib.sha1(usedforsecurity=False)
            self._hash.update(b"blob %d\0" % size)
        else:
            self._hash = hashlib.new(algorithm)

    def update(self, data: bytes) -> None:
        self._hash.update(data)

    def hexdigest(self) -> str:
        return str(self._hash.hexdigest())


def matches(data: bytes, expected: FileId) -> bool:
    """Whether `data` is what `expected` names."""
    hasher = Hasher(expected.algorithm, len(data))
    hasher.update(data)
    return hasher.hexdigest() == expected.value


def hash_file(path: Path, algorithm: str) -> str:
    """The hash of a file in hex; memory does not grow with the file.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as stream:
        hasher = Hasher(algorithm, os.fstat(stream.fileno()).st_size)
        while piece := stream.read(CHUNK):
            hasher.update(piece)
    return hasher.hexdigest()
