"""Rule `syntax`: every module parses with the oldest Python that the project declares."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from kernelhub.errors import Problem
from kernelhub.formats.build_toml import BuildFile

from .source import Module, Subject

LOWEST = (3, 10)
"""What is meant where a project declares no range: the oldest Python that the loader runs on."""
_KNOWN = tuple((3, minor) for minor in range(8, 21))


def find(subject: Subject) -> Iterator[Problem]:
    """Parse each module twice: as this Python reads it, and as the oldest one would."""
    oldest = python_range(subject.build_file)[0]
    for package in subject.packages:
        for module in package.modules:
            yield from _faults(module, oldest)


def python_range(build_file: BuildFile | None) -> tuple[tuple[int, int], ...]:
    """The minor versions of Python that a project declares, oldest first; never empty."""
    declared = build_file.requires.get("python") if build_file is not None else None
    try:
        specifier = SpecifierSet(declared or f">={LOWEST[0]}.{LOWEST[1]}")
    except InvalidSpecifier:  # reported by the build file's own check
        return (LOWEST,)
    admitted = [
        (major, minor)
        for major, minor in _KNOWN
        if any(specifier.contains(f"{major}.{minor}.{patch}") for patch in range(31))
    ]
    return tuple(admitted) or (LOWEST,)


def _faults(module: Module, oldest: tuple[int, int]) -> Iterator[Problem]:
    running = sys.version_info[:2]
    fault = _fault(module.text, None)
    if fault is not None:
        yield _problem(module, fault, f"does not parse with Python {running[0]}.{running[1]}")
        return
    if oldest < running and (fault := _fault(module.text, oldest)) is not None:
        version = f"{oldest[0]}.{oldest[1]}"
        yield _problem(
            module,
            fault,
            f"does not parse with Python {version}, the oldest that is declared",
            f"write it as Python {version} reads it, or raise python in [general.requires]",
        )


def _fault(text: str, version: tuple[int, int] | None) -> SyntaxError | None:
    try:
        ast.parse(text.removeprefix("\ufeff"), feature_version=version)
    except SyntaxError as error:
        return error
    except (ValueError, RecursionError, MemoryError) as error:
        return SyntaxError(str(error) or "too deeply nested")
    return None


def _problem(module: Module, fault: SyntaxError, what: str, hint: str | None = None) -> Problem:
    return Problem(
        path=module.path,
        line=fault.lineno,
        column=fault.offset,
        message=f"{what}: {fault.msg}",
        hint=hint,
        code="syntax",
    )
