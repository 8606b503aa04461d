"""The digest of a variant: a hash of each file, stored in its metadata.json.

The format is HF's: values are standard base64 of the raw hash of a file's bytes; keys are paths
relative to the variant with `/`; file modes and empty folders are not covered.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

from .names import path_fault

Algorithm = Literal["sha256", "sha512"]
HASH_BYTES: Mapping[str, int] = {"sha256": 32, "sha512": 64}
UNHASHED = frozenset({"metadata.json", "metadata.json.sigstore"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Digest:
    """Hashes of the files of one variant: path relative to it -> base64 of the hash."""

    # Not checked when constructed, since the files of a folder may have any name: `faults` tells
    # whether a digest may be published or believed.

    algorithm: Algorithm
    files: Mapping[str, str]


def is_hashed(path: str) -> bool:
    """Whether a file (path relative to the variant) is covered by the digest.

    Left out are the metadata and its signature at the top, byte code and `__pycache__`.
    """
    if ".pyc" not in path and "__pycache__" not in path:
        return path not in UNHASHED
    posix = PurePosixPath(path)
    return not (path in UNHASHED or posix.suffix == ".pyc" or "__pycache__" in posix.parts)


def hash_bytes(data: bytes, algorithm: Algorithm = "sha256") -> str:
    """The digest's value for a file of this content."""
    return encode(hashlib.new(algorithm, data).digest())


def encode(raw: bytes) -> str:
    """The digest's value for a raw hash."""
    return base64.b64encode(raw).decode("ascii")


def value_fault(value: str, algorithm: str) -> str | None:
    """Why `value` is not the base64 of a hash, or None."""
    size = HASH_BYTES.get(algorithm)
    try:
        raw = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return "expected standard base64 with padding"
    if size is not None and len(raw) != size:
        return f"expected the {size} bytes of a {algorithm} hash, found {len(raw)}"
    return None if encode(raw) == value else "expected the one canonical base64 of the hash"


def faults(digest: Digest) -> dict[str, str]:
    """What is wrong with a received digest, by path; empty if it may be believed."""
    found: dict[str, str] = {}
    for path, value in digest.files.items():
        if fault := path_fault(path) or value_fault(value, digest.algorithm):
            found[path] = fault
        elif not is_hashed(path):
            found[path] = "files of this name are never part of a digest"
        elif folder := next(filter(digest.files.__contains__, _folders(path)), None):
            found[path] = f"{folder!r} is given as a file, so nothing can be below it"
    return found


def _folders(path: str) -> Iterator[str]:
    """The folders that a sound path is in, innermost first."""
    while folder := path.rpartition("/")[0]:
        yield folder
        path = folder


def compare(expected: Digest, actual: Digest) -> dict[str, str]:
    """Faults of `actual` by path, empty if both are equal.

    Where the algorithms differ nothing can be compared: each expected path is reported.
    """
    if expected.algorithm != actual.algorithm:
        reason = f"cannot compare {expected.algorithm} with {actual.algorithm}"
        return dict.fromkeys([*expected.files] or ["metadata.json"], reason)
    found: dict[str, str] = {}
    for path, value in expected.files.items():
        if path not in actual.files:
            found[path] = "missing"
        elif actual.files[path] != value:
            found[path] = f"content differs: expected {value}, found {actual.files[path]}"
    unknown = (path for path in actual.files if path not in expected.files)
    return found | dict.fromkeys(unknown, "not part of what was published")
