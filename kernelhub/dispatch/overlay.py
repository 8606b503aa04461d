"""The user's own trees, per repository and device, apart from the kernels that they are for.

    <overlays>/<owner>/<name>/<kernel>.<device>.py      a tree, as kernels bundle them
    <overlays>/<owner>/<name>/<kernel>.<device>.json    its evidence

Both are usable as they are by the kernel's author, who may put them into `tuning/`.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kernelhub.errors import InputError, NotFoundError, StoreError
from kernelhub.formats.tree import Tree, render


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlay:
    """One tree of the user's. `repo_id` is "owner/name"."""

    repo_id: str
    kernel: str
    device: str
    path: Path


def folder_of(overlays: Path, repo_id: str) -> Path:
    """Where the trees for one repository lie; it need not exist.

    Raises:
        InputError: not an id of the form owner/name.
    """
    parts = repo_id.split("/")
    if len(parts) != 2 or any(not part or part.startswith(".") or "\\" in part for part in parts):
        raise InputError(f"{repo_id!r} is not a repository id", hint="write owner/name")
    return overlays / parts[0] / parts[1]


def tree_name(tree: Tree) -> str:
    """The file name of a tree: "attention.attention_fwd.nvidia-h200.py"."""
    return f"{tree.kernel}.{tree.device.slug}.py"


def save(overlays: Path, repo_id: str, tree: Tree, evidence: bytes | None = None) -> Path:
    """Write a tree (and its evidence) for a repository; replaces that kernel's and device's.

    Raises:
        FormatError: the tree breaks its rules.
        StoreError: the disk failed; what was there before is still there.
    """
    folder, name = folder_of(overlays, repo_id), tree_name(tree)
    text = render(tree).encode()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if evidence is not None:
            _write(folder / f"{name.removesuffix('.py')}.json", evidence)
        _write(folder / name, text)
    except OSError as error:
        raise StoreError(f"cannot write to {folder}: {error.strerror}") from error
    return folder / name


def listing(overlays: Path) -> Iterator[Overlay]:
    """All overlays of this user, by repository, kernel and device.

    Raises:
        StoreError: the folder cannot be read.
    """
    try:
        paths = sorted(overlays.glob("*/*/*.py"))
    except OSError as error:
        raise StoreError(f"cannot read {overlays}: {error.strerror}") from error
    for path in paths:
        kernel, _, device = path.stem.rpartition(".")
        repo_id = f"{path.parent.parent.name}/{path.parent.name}"
        if kernel:
            yield Overlay(repo_id=repo_id, kernel=kernel, device=device, path=path)


def remove(
    overlays: Path, repo_id: str, *, kernel: str | None = None, device: str | None = None
) -> list[Overlay]:
    """Delete the repository's overlays, or those of one kernel or one device; returns them.

    Raises:
        NotFoundError: there is none to remove.
        StoreError: the disk failed.
    """
    folder_of(overlays, repo_id)
    chosen = [
        found
        for found in listing(overlays)
        if found.repo_id == repo_id
        and kernel in (None, found.kernel)
        and device in (None, found.device)
    ]
    if not chosen:
        raise NotFoundError(
            f"no overlay of {repo_id} matches", hint="kernelhub overlay list shows what there is"
        )
    try:
        for found in chosen:
            found.path.unlink()
            found.path.with_suffix(".json").unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(f"cannot remove {error.filename}: {error.strerror}") from error
    return chosen


def _write(path: Path, data: bytes) -> None:
    """Whole or not at all, also when killed or when another process writes the same file."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
