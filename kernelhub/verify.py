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


def walk(folder: Path) -> Iterator[tuple[str, Path]]:
    """Regular files below `folder` as (path with `/`, place), sorted by path.

    A symbolic link to a file counts under its own name; links to folders are not followed.

    Raises:
        OSError: something cannot be read, or a link leads nowhere.
    """
    return ((path, place) for path, place, is_regular in _entries(folder) if is_regular)


def _entries(folder: Path) -> list[tuple[str, Path, bool]]:
    """What `walk` gives, and with False what is no file either: pipes, sockets, devices."""
    found: list[tuple[str, Path, bool]] = []
    for current, names, files in os.walk(folder, onerror=_raise):
        names[:] = [name for name in names if not (Path(current) / name).is_symlink()]
        for name in files:
            place = Path(current) / name
            is_regular = stat.S_ISREG(place.stat().st_mode)
            found.append((place.relative_to(folder).as_posix(), place, is_regular))
    return sorted(found)


def _raise(error: OSError) -> None:
    raise error


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
    faults: dict[str, str] = {}
    try:
        entries = [entry for entry in _entries(folder) if digests.is_hashed(entry[0])]
    except OSError as error:
        raise IntegrityError(f"{folder} cannot be read: {error}") from error
    present = {path: place for path, place, is_regular in entries if is_regular}
    others = [path for path, _, is_regular in entries if not is_regular]
    for path, expected in manifest.items():
        if not digests.is_hashed(path):
            continue
        place = present.pop(path, None)
        if place is None:
            faults[path] = "missing"
        elif fault := _fault(place, expected):
            faults[path] = fault
    faults |= dict.fromkeys((*present, *others), "not part of what was published")
    if faults:
        raise IntegrityError(f"{folder} does not hold what was published", faults=faults)


def _fault(place: Path, expected: FileId) -> str | None:
    try:
        actual = hash_file(place, expected.algorithm)
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
    if actual == expected.value:
        return None
    return f"content differs: expected {expected.algorithm} {expected.value}, found {actual}"


Facts = tuple[tuple[str, int, int, int, int], ...]


def facts(folder: Path) -> Facts:
    """What changes when bytes may have changed: per file its size, times and inode.

    A change of content alters the change time even where a program sets the modification time back;
    who can set the system's clock back as well could as well alter this process.

    Raises:
        OSError: something cannot be read.
    """
    found: list[tuple[str, int, int, int, int]] = []
    for path, place in walk(folder):
        state = place.stat()
        found.append((path, state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino))
    return tuple(found)


_verified: dict[Path, tuple[Facts, dict[str, FileId]]] = {}


def verify_once(folder: Path, manifest: Manifest) -> None:
    """`verify`, left out where this process has done it and nothing has changed since.

    Raises:
        IntegrityError: as `verify`.
    """
    try:
        before = facts(folder)
    except OSError as error:
        raise IntegrityError(f"{folder} cannot be read: {error}") from error
    if _verified.get(folder) == (before, dict(manifest)):
        return
    _verified.pop(folder, None)
    verify(folder, manifest)
    _verified[folder] = (before, dict(manifest))


def renamed(before: Path, after: Path) -> None:
    """A verified folder got another name: it counts as verified if its facts are still the same."""
    if (state := _verified.pop(before, None)) is not None:
        _verified[after] = state
