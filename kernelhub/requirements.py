"""The kernels that a project asks for: its pyproject.toml and requirements files, collected.

Looked for in the project's folder: the tables of `pyproject.toml` and `kernel-requirements.txt`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .disk import is_file, is_there, reading
from .errors import FormatError, InputError, Problem
from .formats.lock import NAME as LOCK
from .formats.pyproject_tables import parse_pyproject
from .formats.requirement import Requirement
from .formats.requirements_file import Listed, parse_requirements_file
from .settings import Settings

PYPROJECT = "pyproject.toml"
REQUIREMENTS = "kernel-requirements.txt"
_MOST_FILES = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirements:
    """What a project asks for.

    Attributes:
        folder: the project's folder, where its lock is.
        files: where something was found, relative to the folder where that is possible.
        listed: every requirement with its place; a repository may be named more than once.
    """

    folder: Path
    files: tuple[str, ...]
    listed: tuple[Listed, ...]

    def by_repository(self) -> dict[str, tuple[Listed, ...]]:
        """The requirements of each repository, sorted by its name."""
        grouped: dict[str, tuple[Listed, ...]] = {}
        for item in self.listed:
            repo_id = item.requirement.repo_id
            grouped[repo_id] = (*grouped.get(repo_id, ()), item)
        return dict(sorted(grouped.items()))


def project_folder(now: Settings, start: Path | None = None) -> Path:
    """The project's folder: the setting, else the nearest one upward that holds its files.

    Args:
        start: where to look from; default: the working directory.

    Raises:
        InputError: there is none.
    """
    if now.project is not None:
        return now.project
    start = (start or Path.cwd()).absolute()
    for folder in (start, *start.parents):
        if any(is_there(folder / name) for name in (LOCK, REQUIREMENTS)):
            return folder
        if is_there(folder / PYPROJECT) and _from_pyproject(folder / PYPROJECT, PYPROJECT):
            return folder
    raise InputError(
        f"neither {start} nor a folder above it states requirements for kernels",
        hint=f"add [tool.kernelhub.dependencies] to {PYPROJECT}, or write {REQUIREMENTS}",
    )


def collect(folder: Path, files: Sequence[Path] = ()) -> Requirements:
    """The requirements of a project.

    Args:
        folder: the project's folder.
        files: requirements files to read in place of what the folder holds.

    Raises:
        FormatError: faults of every file that was read, at once.
        InputError: a file cannot be read.
    """
    listed: list[Listed] = []
    problems: list[Problem] = []
    read: list[str] = []
    for path in files or _found(folder):
        try:
            listed += _read(path, folder, read)
        except FormatError as error:  # noqa: PERF203 - faults of every file are told at once
            problems += error.problems
    if problems:
        raise FormatError("requirements of kernels", problems)
    return Requirements(folder=folder, files=tuple(read), listed=tuple(listed))


def of_texts(folder: Path, requirements: Iterable[Requirement]) -> Requirements:
    """Requirements that were given on a command line."""
    listed = tuple(
        Listed(requirement=requirement, path="command line", line=number)
        for number, requirement in enumerate(requirements, 1)
    )
    return Requirements(folder=folder, files=("command line",), listed=listed)


def _found(folder: Path) -> tuple[Path, ...]:
    names = (folder / PYPROJECT, folder / REQUIREMENTS)
    return tuple(filter(is_file, names))


def _read(path: Path, folder: Path, read: list[str]) -> tuple[Listed, ...]:
    if path.name == PYPROJECT:
        read.append(_shown(path, folder))
        return _from_pyproject(path, _shown(path, folder))
    listed: list[Listed] = []
    problems: list[Problem] = []
    waiting, seen = [path], set[Path]()
    while waiting and len(seen) < _MOST_FILES:
        current = waiting.pop(0)
        if current.resolve() in seen:
            continue  # a file that includes itself, or one that two others include
        seen.add(current.resolve())
        read.append(_shown(current, folder))
        try:
            found = parse_requirements_file(_bytes(current), _shown(current, folder))
        except FormatError as error:
            problems += error.problems
            continue
        listed += found.listed
        waiting += [current.parent / include.target for include in found.includes]
    if problems:
        raise FormatError(_shown(path, folder), problems)
    return tuple(listed)


def _from_pyproject(path: Path, shown: str) -> tuple[Listed, ...]:
    return parse_pyproject(_bytes(path), shown)


def _bytes(path: Path) -> bytes:
    with reading(path):
        if not path.is_file():
            raise InputError(f"{path} does not exist", hint="it is named by -r, or was asked for")
        return path.read_bytes()


def _shown(path: Path, folder: Path) -> str:
    try:
        return path.absolute().relative_to(folder.absolute()).as_posix()
    except ValueError:
        return str(path)
