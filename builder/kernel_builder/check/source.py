"""A project as the rules see it: its build file and the text and syntax tree of its modules."""

from __future__ import annotations

import ast
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kernel_builder.project import OPS_MODULE, TUNING_FOLDER, printable
from kernelhub.errors import Problem
from kernelhub.formats.build_toml import BuildFile
from kernelhub.reporter import SILENT, Reporter
from kernelhub.settings import Settings

FRAMEWORKS = ("torch", "jax")
MAX_PARSED = 1 << 20
"""Bytes. A longer module is reported by `files` and not parsed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """One Python file of a package.

    Attributes:
        path: relative to the project, with `/`.
        name: relative to its package, with `/`: "layers/norm.py".
        text: what the file's bytes decode to, line ends and all.
        tree: None where it does not parse.
    """

    path: str
    name: str
    text: str
    tree: ast.Module | None

    @property
    def depth(self) -> int:
        """How many folders of the package it lies in; 0 for modules beside `__init__.py`."""
        return self.name.count("/")


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageSource:
    """One package.

    Attributes:
        framework, name: "torch" or "jax", and the package's own name.
        folder, inside: where it lies, and its path in the project with `/`.
        files: everything in it, relative and sorted.
        modules: its Python files, without trees and the generated `_ops.py`.
        unread: why some of them could not be read.
    """

    framework: str
    name: str
    folder: Path
    inside: str
    files: tuple[str, ...]
    modules: tuple[Module, ...]
    unread: tuple[Problem, ...] = ()

    def module(self, name: str) -> Module | None:
        """The module of that name relative to the package."""
        return next((module for module in self.modules if module.name == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is checked. `build_file` is None where build.toml is malformed.

    Attributes:
        targets: architectures asked for; empty for those of build.toml or the defaults.
        settings: where compiled kernels are kept.
        reporter: hears of what takes long.
    """

    root: Path
    build_file: BuildFile | None
    packages: tuple[PackageSource, ...]
    targets: tuple[str, ...] = ()
    settings: Settings
    reporter: Reporter = SILENT


def read_packages(root: Path, build_file: BuildFile | None) -> tuple[PackageSource, ...]:
    """Read the packages that build.toml declares, or every one that lies there without it."""
    found = []
    for framework in FRAMEWORKS:
        parent = root / f"{framework}-ext"
        if build_file is None:
            names = _folders(parent)
        elif framework in build_file.frameworks:
            names = [build_file.python_name]
        else:
            continue
        for name in names:
            folder = parent / name
            if folder.is_dir() and not folder.is_symlink() and not parent.is_symlink():
                found.append(_read_package(framework, folder))
    return tuple(found)


def _folders(parent: Path) -> list[str]:
    if not parent.is_dir():
        return []
    names = [entry.name for entry in parent.iterdir() if entry.is_dir()]
    return sorted(name for name in names if name.isidentifier() and name != "__pycache__")


def _read_package(framework: str, folder: Path) -> PackageSource:
    inside = f"{framework}-ext/{folder.name}"
    files = tuple(sorted(_walk(folder), key=os.fsencode))
    read = [
        _read_module(folder / name, inside, name)
        for name in files
        if name.endswith(".py") and _is_source(name)
    ]
    return PackageSource(
        framework=framework,
        name=folder.name,
        folder=folder,
        inside=inside,
        files=files,
        modules=tuple(module for module in read if isinstance(module, Module)),
        unread=tuple(problem for problem in read if isinstance(problem, Problem)),
    )


def _is_source(name: str) -> bool:
    """Trees are data with a rule of their own; `_ops.py` is generated."""
    return not name.startswith(f"{TUNING_FOLDER}/") and name != OPS_MODULE


def _walk(folder: Path) -> Iterator[str]:
    for parent, folders, names in os.walk(folder):  # links are not followed
        folders[:] = sorted(f for f in folders if not (Path(parent) / f).is_symlink())
        for name in names:
            path = Path(parent) / name
            if stat.S_ISREG(path.lstat().st_mode):
                yield path.relative_to(folder).as_posix()


def _read_module(path: Path, inside: str, name: str) -> Module | Problem | None:
    """None for a module that is too long, which the rule `files` reports."""
    where = printable(f"{inside}/{name}")
    try:
        if path.stat().st_size > MAX_PARSED:
            return None
        data = path.read_bytes()
    except OSError as error:
        message = f"cannot be read: {error.strerror}"
        return Problem(path=where, message=message, hint="mend its permissions", code="unreadable")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        return Problem(
            path=where,
            line=data.count(b"\n", 0, error.start) + 1,
            message=f"not UTF-8: byte {error.start} cannot be decoded",
            hint="save the file as UTF-8",
            code="not-utf8",
        )
    return Module(path=where, name=name, text=text, tree=_parse(text))


def _parse(text: str) -> ast.Module | None:
    try:
        return ast.parse(text.removeprefix("\ufeff"))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None  # the rule `syntax` parses again and says why
