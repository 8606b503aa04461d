"""Requirements as text, one kernel a line, as pip's files are written.

    org/flash-attn>=1,<3      # a comment
    org/norms@715eaa24490779a6961cf24e2a849c25afdc7801
    -r more-kernels.txt

Pure: a file that is included by `-r` is named, and read by who calls.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kernelhub.errors import FormatError, Problem, RequirementError

from .requirement import Requirement, parse_requirement
from .toml_lines import decode_text

_COMMENT = re.compile(r"(?:^|\s)#.*$")
_INCLUDE = re.compile(r"(?:-r(?=\s|$)|--requirement(?=[\s=]|$))[\s=]*(?P<path>.*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A requirement and the place (file and line, from 1) that states it."""

    requirement: Requirement
    path: str
    line: int

    @property
    def origin(self) -> str:
        """ "requirements.txt:3"."""
        return f"{self.path}:{self.line}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Include:
    """`-r other.txt`: a file, relative to the one that names it."""

    target: str
    path: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RequirementsFile:
    """What one file states, in its order."""

    listed: tuple[Listed, ...]
    includes: tuple[Include, ...]


def parse_requirements_file(data: str | bytes, path: str) -> RequirementsFile:
    """Read a requirements file.

    Args:
        data: its text, or its bytes as they are on disk.
        path: its name in error texts.

    Raises:
        FormatError: every fault of the file, each with line and column.
    """
    listed: list[Listed] = []
    includes: list[Include] = []
    problems: list[Problem] = []
    for number, raw in enumerate(decode_text(data, path).split("\n"), 1):
        line = _COMMENT.sub("", raw).rstrip()
        text = line.lstrip()
        if not text:
            continue
        column = len(line) - len(text) + 1
        if (include := _INCLUDE.fullmatch(text)) is not None and include["path"]:
            includes.append(Include(target=include["path"], path=path, line=number))
        elif text.startswith("-"):
            problems.append(_option(text, path, number, column))
        else:
            try:
                listed.append(Listed(requirement=parse_requirement(text), path=path, line=number))
            except RequirementError as error:
                problems.append(_problem(error, path, number, column))
    if problems:
        raise FormatError(path, problems)
    return RequirementsFile(listed=tuple(listed), includes=tuple(includes))


def _option(text: str, path: str, line: int, column: int) -> Problem:
    if _INCLUDE.fullmatch(text):
        message, hint = "-r names no file", "for example -r more-kernels.txt"
    else:
        message, hint = f"unknown option {text.split()[0]!r}", "only -r FILE is known here"
    return Problem(
        message=message, path=path, line=line, column=column, hint=hint, code="unknown-option"
    )


def _problem(error: RequirementError, path: str, line: int, column: int) -> Problem:
    return Problem(
        message=error.reason,
        path=path,
        line=line,
        column=column + error.column - 1,
        hint=error.hint,
        code="requirement",
    )
