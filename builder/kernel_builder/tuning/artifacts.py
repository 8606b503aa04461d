"""Write a tree and its evidence beside the kernel: whole, or not at all; nobody else's files.

    <package>/tuning/<kernel>.<device-slug>.py
    <package>/tuning/<kernel>.<device-slug>.json

The same measurements and options give the same bytes.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from kernelhub.errors import StoreError
from kernelhub.formats.tree import Tree, render


def write_artifacts(folder: Path, tree: Tree, evidence: bytes) -> list[Path]:
    """Write both files into `folder`, the evidence first: a tree never lacks its evidence.

    Raises:
        FormatError: the tree breaks its rules.
        StoreError: the disk refuses; what was there before is still there.
    """
    name = f"{tree.kernel}.{tree.device.slug}"
    files = {f"{name}.json": evidence, f"{name}.py": render(tree).encode()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, data in files.items():
            _replace(folder / file, data)
    except OSError as error:
        raise StoreError(
            f"cannot write {folder}: {error.strerror or error}",
            hint="measurements are kept; run again with --phase build",
        ) from error
    return [folder / file for file in files]


def _replace(path: Path, data: bytes) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
