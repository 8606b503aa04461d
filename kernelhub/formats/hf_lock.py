"""Lock files of HF's client (`kernels.lock`), both of its formats.

The new one (from 0.17 on) is JSON such as

    [{"dependency": {"repo-id": "org/k", "version": 1}, "lock": {"commit": "<40 hex>"}}]

and the old one

    [{"repo_id": "org/k", "sha": "<commit>",
      "variants": {"torch-cpu": {"hash": "sha256-<hex>", "hash_type": "git_lfs_concat"}}}]

Neither holds a hash of the content that is safe on its own: the new one has none, and that of the
old one is over git's SHA-1 ids.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pydantic import ConfigDict, Field

from kernelhub.errors import FormatError, Problem

from .digest import is_hashed
from .json_text import load_json
from .metadata_model import KernelDependency
from .models import Received, problem, shown, validate
from .scalars import Commit, RepoId, Text

NAME = "kernels.lock"
HASH_TYPE = "git_lfs_concat"


@dataclass(frozen=True, slots=True, kw_only=True)
class HfLocked:
    """One kernel of HF's lock.

    Attributes:
        repo_id: "org/name".
        version: the version that it was resolved from; None in the old format, and for a revision.
        revision: the revision that it was resolved from instead.
        commit: full commit id.
        hashes: the old format's hash of each variant, "sha256-<hex>".
    """

    repo_id: str
    version: int | None = None
    revision: str | None = None
    commit: str
    hashes: Mapping[str, str] = field(default_factory=dict)


class _Pinned(Received):
    model_config = ConfigDict(extra="forbid")
    commit: Commit
    hash: Text | None = None


class _New(Received):
    model_config = ConfigDict(extra="forbid")
    dependency: KernelDependency
    lock: _Pinned


class _Hash(Received):
    model_config = ConfigDict(alias_generator=None)
    hash: Text
    hash_type: Text


class _Old(Received):
    model_config = ConfigDict(alias_generator=None)
    repo_id: RepoId
    sha: Commit
    variants: dict[Text, _Hash] = Field(default_factory=dict)


def parse_hf_lock(data: bytes, path: str = NAME) -> tuple[HfLocked, ...]:
    """Read a lock of HF's client, of either format, sorted as that client writes it.

    Raises:
        FormatError: no JSON, neither format, or values that are missing or wrong; every fault.
    """
    raw = load_json(data, path)
    if not isinstance(raw, list):
        message = f"expected a list, found {shown(raw)}"
        raise FormatError(path, [Problem(message=message, path=path)])
    found: list[Problem] = []
    locked: list[HfLocked] = []
    for index, entry in enumerate(raw):
        is_old = isinstance(entry, dict) and "repo_id" in entry
        model: type[_Old] | type[_New] = _Old if is_old else _New
        value, errors = validate(model, entry)
        for error in errors:
            located = problem(error, model=model, path=path, position=lambda *_: None)
            at = f"[{index}]" + (f".{located.at}" if located.at else "")
            found.append(Problem(message=located.message, path=path, at=at, hint=located.hint))
        if isinstance(value, _Old):
            locked.append(_from_old(value))
        elif isinstance(value, _New):
            locked.append(_from_new(value))
    found += _repeated(locked, path)
    if found:
        raise FormatError(path, found)
    return tuple(sorted(locked, key=_order))


def render_hf_lock(locked: Iterable[HfLocked]) -> bytes:
    """The bytes of HF's new format: sorted, two spaces, no newline at the end."""
    entries = []
    for kernel in sorted(locked, key=_order):
        pin: dict[str, object] = {"repo-id": kernel.repo_id}
        if kernel.version is not None:
            pin["version"] = kernel.version
        else:
            pin["revision"] = kernel.revision or kernel.commit
        entries.append({"dependency": pin, "lock": {"commit": kernel.commit}})
    return json.dumps(entries, indent=2).encode()


def render_old_hf_lock(locked: Iterable[HfLocked]) -> bytes:
    """The bytes of HF's old format (up to 0.16)."""
    entries = [
        {
            "repo_id": kernel.repo_id,
            "sha": kernel.commit,
            "variants": {
                name: {"hash": value, "hash_type": HASH_TYPE}
                for name, value in sorted(kernel.hashes.items())
            },
        }
        for kernel in sorted(locked, key=_order)
    ]
    return json.dumps(entries, indent=2).encode()


def git_lfs_concat(files: Mapping[str, str]) -> str:
    """The old format's hash of a variant.

    Args:
        files: path relative to the variant to the hex of its id: the SHA-256 of an LFS file, else
            the SHA-1 of the git blob. Byte code is left out.
    """
    hasher = hashlib.sha256()
    for path in sorted(files, key=str.encode):
        if path == "metadata.json" or is_hashed(path) or path == "metadata.json.sigstore":
            hasher.update(path.encode())
            hasher.update(bytes.fromhex(files[path]))
    return f"sha256-{hasher.hexdigest()}"


def _from_old(value: _Old) -> HfLocked:
    hashes = {
        name: entry.hash for name, entry in value.variants.items() if entry.hash_type == HASH_TYPE
    }
    return HfLocked(repo_id=value.repo_id, commit=value.sha, hashes=hashes)


def _from_new(value: _New) -> HfLocked:
    pin = value.dependency
    return HfLocked(
        repo_id=pin.repo_id, version=pin.version, revision=pin.revision, commit=value.lock.commit
    )


def _order(kernel: HfLocked) -> tuple[str, bool, int, str]:
    """By repository, then versions by number, then revisions."""
    version = kernel.version
    return kernel.repo_id, version is None, version or 0, kernel.revision or kernel.commit


def _repeated(locked: Iterable[HfLocked], path: str) -> list[Problem]:
    seen: set[tuple[str, bool, int, str]] = set()
    found: list[Problem] = []
    for kernel in locked:
        if _order(kernel) in seen:
            found.append(Problem(message=f"{kernel.repo_id} is listed twice", path=path))
        seen.add(_order(kernel))
    return found
