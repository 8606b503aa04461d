"""Kernels in a local folder: a repository, its `build/`, or one variant."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kernelhub.errors import NotFoundError

METADATA = "metadata.json"


def find_variants(path: Path) -> Mapping[str, Path]:
    """The variants in a folder, by name.

    Args:
        path: a repository or project (holds `build/`), a build folder (its subfolders hold
            metadata.json), or one variant (holds metadata.json itself).

    Raises:
        NotFoundError: it is none of these.
    """
    if not path.is_dir():
        raise NotFoundError(
            f"{path} is no folder", hint="give a kernel's project, its build/ or one variant"
        )
    path = path.absolute()
    if (path / METADATA).is_file():
        return {path.name: path}
    for folder in (path / "build", path):
        found = {child.name: child for child in _children(folder) if (child / METADATA).is_file()}
        if found:
            return found
    raise NotFoundError(
        f"{path} holds no built kernel: neither metadata.json nor build/<variant>/metadata.json",
        hint="`kernel-builder build` makes one",
    )


def _children(folder: Path) -> list[Path]:
    return sorted(child for child in folder.iterdir() if child.is_dir()) if folder.is_dir() else []
