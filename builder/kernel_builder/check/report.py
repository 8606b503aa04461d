"""Running the rules over a project, and mending what can be mended."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kernel_builder.project import BUILD_FILE, Project
from kernelhub.errors import FormatError, InputError, Problem
from kernelhub.formats.build_toml import BuildFile, parse_build_toml
from kernelhub.reporter import SILENT, Reporter
from kernelhub.settings import current

from . import fix
from .rules import NOTES, RULES
from .source import Subject, read_packages


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What was found. `faults` must be mended, `notes` are only said, `fixed` are files rewritten.

    Both are sorted by place.
    """

    faults: tuple[Problem, ...]
    notes: tuple[Problem, ...]
    fixed: tuple[str, ...] = ()


def check_project(
    path: Path | str,
    *,
    repair: bool = False,
    targets: Iterable[str] = (),
    compiling: bool = True,
    reporter: Reporter = SILENT,
) -> Report:
    """Check a project; nothing of it runs in this process.

    Args:
        path: the project's folder, or its build.toml.
        repair: first rewrite absolute imports of the package to relative ones.
        targets: architectures to compile Triton kernels for ("sm_90", "gfx942") instead of those
            that build.toml declares.
        compiling: compile Triton kernels at all.
        reporter: hears of the compilation, which takes seconds to minutes.

    Raises:
        InputError: there is no project at `path`, or a target is no architecture.
        StoreError: a file cannot be rewritten.
    """
    problems: list[Problem] = []
    root, build_file = _open(Path(path), problems)
    packages = read_packages(root, build_file)
    fixed: tuple[str, ...] = ()
    if repair:
        fixed = tuple(name for package in packages for name in fix.repair_package(package))
        problems = []
        root, build_file = _open(Path(path), problems)
        packages = read_packages(root, build_file)
    subject = Subject(
        root=root,
        build_file=build_file,
        packages=packages,
        targets=tuple(targets),
        settings=current(),
        reporter=reporter,
    )
    for rule in RULES:
        if compiling or not rule.compiles:
            problems.extend(rule.find(subject))
    ordered = sorted(dict.fromkeys(problems), key=_place)
    return Report(
        faults=tuple(p for p in ordered if p.code not in NOTES),
        notes=tuple(p for p in ordered if p.code in NOTES),
        fixed=fixed,
    )


def _open(path: Path, problems: list[Problem]) -> tuple[Path, BuildFile | None]:
    """The project's folder and build file; faults of layout and build.toml become problems."""
    try:
        project = Project.open(path)
    except FormatError as error:
        problems.extend(error.problems)
    else:
        return project.root, project.build_file
    root = (path.parent if path.name == BUILD_FILE else path).resolve()
    try:
        return root, parse_build_toml((root / BUILD_FILE).read_bytes())
    except FormatError:
        return root, None  # what is wrong with it is among the problems already
    except OSError as error:
        raise InputError(f"cannot read {root / BUILD_FILE}: {error.strerror}") from error


def _place(problem: Problem) -> tuple[str, int, int, str]:
    path = problem.path or ""
    return (os.fspath(path), problem.line or 0, problem.column or 0, problem.code or "")
