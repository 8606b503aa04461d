"""Large objects, kept beside the git objects of a repository and named by their SHA-256.

In git only a pointer is kept (git-lfs specification, version 1). A file arrives in a temporary one,
is hashed on the way, synced, and only then gets its name, so a name never stands for other bytes.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from .refusal import Refusal, bad_request

CHUNK = 1024 * 1024
POINTER_BYTES = 1024  # the specification's upper bound for a pointer file
_POINTER = re.compile(
    rb"version https://git-lfs\.github\.com/spec/v1\n"
    rb"oid sha256:([0-9a-f]{64})\nsize ([0-9]{1,19})\n"
)
_OID = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pointer:
    """What git keeps of a large file: hex SHA-256 and size in bytes."""

    oid: str
    size: int

    def render(self) -> bytes:
        return (
            f"version https://git-lfs.github.com/spec/v1\noid sha256:{self.oid}\nsize {self.size}\n"
        ).encode()


def parse_pointer(data: bytes) -> Pointer | None:
    """The pointer that a blob holds, None if it is an ordinary file."""
    match = _POINTER.fullmatch(data) if len(data) <= POINTER_BYTES else None
    return Pointer(oid=match[1].decode(), size=int(match[2])) if match else None


def check_oid(oid: object) -> str:
    """Check a SHA-256 in lower-case hex.

    Raises:
        Refusal: 400.
    """
    if not isinstance(oid, str) or not _OID.fullmatch(oid):
        raise bad_request(f"not a SHA-256: {oid!r}")
    return oid


class LfsObjects:
    """The objects of one repository, in git-lfs' own layout `lfs/objects/aa/bb/<oid>`."""

    def __init__(self, repository: Path) -> None:
        self._repository = repository

    def path(self, oid: str) -> Path:
        return self._repository / "lfs" / "objects" / oid[:2] / oid[2:4] / oid

    def parts(self, oid: str) -> Path:
        """The folder for parts of an object that is uploaded in several."""
        return self._repository / "lfs" / "parts" / oid

    def size(self, oid: str) -> int | None:
        """Bytes of an object, None where there is none."""
        try:
            return self.path(oid).stat().st_size
        except FileNotFoundError:
            return None

    def admit(self, incoming: Incoming, oid: str, size: int) -> None:
        """Name a received file, if it is the one that was announced.

        Raises:
            Refusal: 400, its bytes are others; nothing is kept.
        """
        if (incoming.oid, incoming.size) != (oid, size):
            raise bad_request(
                f"expected {size} bytes with SHA-256 {oid},"
                f" received {incoming.size} bytes with SHA-256 {incoming.oid}"
            )
        self.keep(incoming, self.path(oid))

    def keep(self, incoming: Incoming, path: Path) -> None:
        """Sync a received file and give it its name; a file of that name is replaced whole.

        Raises:
            Refusal: 404, the repository is gone by now.
        """
        if not self._repository.exists():
            raise Refusal(404, "the repository was deleted meanwhile", code="RepoNotFound")
        incoming.keep(path)


class Incoming:
    """A file on its way in: a temporary file with a running hash. Use as a context manager."""

    def __init__(self, folder: Path, limit: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix="incoming-", dir=folder)
        self._path = Path(name)
        self._file = os.fdopen(descriptor, "wb")
        self._hash = hashlib.sha256()
        self._limit = limit
        self.size = 0

    @property
    def oid(self) -> str:
        return self._hash.hexdigest()

    def write(self, data: bytes) -> None:
        """Append.

        Raises:
            Refusal: 400, there is more than was announced.
        """
        self.size += len(data)
        if self.size > self._limit:
            raise bad_request(f"the body is longer than the {self._limit} bytes announced")
        self._hash.update(data)
        self._file.write(data)

    def write_files(self, paths: Iterable[Path]) -> None:
        """Append whole files, a chunk at a time."""
        for path in paths:
            with path.open("rb") as source:
                while chunk := source.read(CHUNK):
                    self.write(chunk)

    def keep(self, path: Path) -> None:
        """Sync and rename to `path`."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path.replace(path)
        sync_folder(path.parent)

    def __enter__(self) -> Incoming:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._path.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make a rename in a folder durable, where the system can (not on Windows)."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
