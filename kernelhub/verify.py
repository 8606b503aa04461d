"""Are these the bytes that were published? Fails closed.

A `Manifest` says what each file of a variant must be. It is made from the digest in metadata.json
where there is one, else from the ids in the Hub's listing (kernels that were built before digests),
and it is what the importer holds each file against at the moment it reads it.
"""

from __future__ import annotations

import base64
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from .errors import IntegrityError
from .formats import digest as digests
from .formats.digest import Algorithm, Digest
from .formats.metadata import Metadata
from .hashing import FileId, hash_file

METADATA = "metadata.json"


Manifest = Mapping[str, FileId]
"""Path relative to the variant (with `/`) to what the file must be."""

_Seen = list[tuple[str, os.stat_result]]
Facts = tuple[tuple[str, int, int, int, int], ...]


def walk(folder: Path) -> Iterator[tuple[str, Path]]:
    """Regular files below `folder` as (path with `/`, place), sorted by path.

    A symbolic link to a file counts under its own name; links to folders are not followed.

    Raises:
        OSError: something cannot be read, or a link leads nowhere.
    """
    return (
        (path, folder / path) for path, state in _entries(folder) if stat.S_ISREG(state.st_mode)
    )


def _entries(folder: Path) -> list[tuple[str, os.stat_result]]:
    """What is below a folder and is no folder, by path: files, pipes, sockets, devices."""
    found: list[tuple[str, os.stat_result]] = []
    pending = [("", str(folder))]
    while pending:
        start, place = pending.pop()
        with os.scandir(place) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    pending.append((f"{start}{entry.name}/", entry.path))
                elif not stat.S_ISDIR((state := entry.stat()).st_mode):
                    found.append((start + entry.name, state))
    return sorted(found, key=lambda item: item[0])


def hash_folder(folder: Path, algorithm: Algorithm = "sha256") -> Digest:
    """The digest of a variant's folder, as HF's builder computes it.

    Raises:
        OSError: something in it cannot be read.
    """
    files = {
        path: base64.b64encode(bytes.fromhex(hash_file(place, algorithm))).decode("ascii")
        for path, place in walk(folder)
        if digests.is_hashed(path)
    }
    ordered = sorted(files, key=lambda path: path.encode("utf-8", "surrogateescape"))
    return Digest(algorithm=algorithm, files={path: files[path] for path in ordered})


def verify_folder(folder: Path, metadata: Metadata) -> None:
    """Check a variant's folder against the digest in its metadata.

    Raises:
        IntegrityError: a file is missing, differs, or was not published; or there is no digest.
    """
    if metadata.digest is None:
        raise IntegrityError(f"{folder}: metadata.json holds no digest to check it against")
    verify(folder, manifest_of(metadata.digest, str(folder)))


def manifest_of(digest: Digest, subject: str) -> dict[str, FileId]:
    """The manifest that a digest states.

    Raises:
        IntegrityError: the digest itself cannot be believed; names each fault.
    """
    if faults := digests.faults(digest):
        raise IntegrityError(f"{subject}: the digest in metadata.json is malformed", faults=faults)
    return {
        path: FileId(digest.algorithm, base64.b64decode(value).hex())
        for path, value in digest.files.items()
    }


def verify(folder: Path, manifest: Manifest) -> None:
    """Check each file below `folder`, and that there is none besides.

    Raises:
        IntegrityError: names each file with its fault.
    """
    _verify(folder, _seen(folder), manifest)


def _verify(folder: Path, seen: _Seen, manifest: Manifest) -> None:
    present = {path: state for path, state in seen if digests.is_hashed(path)}
    faults: dict[str, str] = {}
    for path, expected in manifest.items():
        if not digests.is_hashed(path):
            continue
        state = present.get(path)
        if state is None or not stat.S_ISREG(state.st_mode):
            faults[path] = "missing"
        else:
            del present[path]
            if fault := _fault(folder / path, expected):
                faults[path] = fault
    faults |= dict.fromkeys(present, "not part of what was published")
    if faults:
        raise IntegrityError(f"{folder} does not hold what was published", faults=faults)


def _seen(folder: Path) -> _Seen:
    try:
        return _entries(folder)
    except OSError as error:
        raise IntegrityError(f"{folder} cannot be read: {error}") from error


def _fault(place: Path, expected: FileId) -> str | None:
    try:
        actual = hash_file(place, expected.algorithm)
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
    if actual == expected.value:
        return None
    return f"content differs: expected {expected.algorithm} {expected.value}, found {actual}"


def _facts(seen: _Seen) -> Facts:
    """What changes when bytes may have changed: per file its size, times and inode.

    A change of content alters the change time even where a program sets the modification time back;
    who can set the system's clock back as well could as well alter this process.
    """
    return tuple(
        (path, state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino)
        for path, state in seen
        if stat.S_ISREG(state.st_mode)
    )


_verified: dict[Path, tuple[Facts, dict[str, FileId]]] = {}


def verify_once(folder: Path, manifest: Manifest) -> None:
    """`verify`, left out where this process has done it and nothing has changed since.

    Raises:
        IntegrityError: as `verify`.
    """
    seen = _seen(folder)
    before = _facts(seen)
    if _verified.get(folder) == (before, dict(manifest)):
        return
    _verified.pop(folder, None)
    _verify(folder, seen, manifest)
    _verified[folder] = (before, dict(manifest))


def renamed(before: Path, after: Path) -> None:
    """A verified folder got another name: it counts as verified if its facts are still the same."""
    if (state := _verified.pop(before, None)) is not None:
        _verified[after] = state
