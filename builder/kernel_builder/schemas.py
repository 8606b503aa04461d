"""The JSON Schemas as files: below `schemas/v1/` of this repository, and in authors' projects."""

from __future__ import annotations

from pathlib import Path

from kernelhub.formats.json_schema import NAMES, VERSION, file_name, render

FOLDER = f"schemas/v{VERSION}"


def write(folder: Path) -> tuple[Path, ...]:
    """Write every schema into `folder`, made if it is missing. Returns the files.

    Raises:
        OSError: the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = tuple(folder / file_name(name) for name in NAMES)
    for name, path in zip(NAMES, paths, strict=True):
        path.write_text(render(name), encoding="utf-8", newline="\n")
    return paths


def drift(folder: Path) -> tuple[str, ...]:
    """What of `folder` is not what the models say; empty if all is.

    Raises:
        OSError: a file cannot be read, other than because it is missing.
    """
    faults = []
    for name in NAMES:
        path = folder / file_name(name)
        if not path.is_file():
            faults.append(f"{path.as_posix()}: missing")
        elif path.read_bytes() != render(name).encode():
            faults.append(f"{path.as_posix()}: differs from the models")
    return tuple(faults)
