"""Kernel requirements: `org/k`, `org/k==1`, `org/k>=1,<3`, `org/k@<branch, tag or commit>`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from packaging.specifiers import SpecifierSet

from kernelhub.errors import RequirementError

from .names import repo_id_fault, revision_fault

_REPO = re.compile(r"[^\s<>=!~@,;\[\]]+")
_CLAUSE = re.compile(r"(?P<op>===|[<>=!~]=|[<>])\s*(?P<version>[^\s,<>=!~@]*)")
_VERSION = re.compile(r"[0-9]{1,19}", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?", re.ASCII)
_OPERATORS = ("==", "!=", ">=", "<=", ">", "<")
_PINS = (*_OPERATORS, "@", "~", "=")
_FORMS = "write org/name, org/name==1, org/name>=1,<3 or org/name@<branch or commit>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """Which kernel is asked for. At most one of `specifier` and `revision` is set.

    Attributes:
        repo_id: "org/name".
        specifier: PEP 440 specifiers over the integer versions; None asks for the newest.
        revision: branch, tag or commit, taken as it is.
    """

    repo_id: str
    specifier: SpecifierSet | None = None
    revision: str | None = None

    def admits(self, version: int) -> bool:
        """Whether version `version` will do. A revision names no version, so it admits none."""
        if self.revision is not None:
            return False
        return self.specifier is None or self.specifier.contains(str(version), prereleases=True)

    @property
    def is_pinned(self) -> bool:
        """Whether the revision is a full commit id, which can never mean anything else."""
        return self.revision is not None and _COMMIT.fullmatch(self.revision) is not None

    def __str__(self) -> str:
        if self.revision is not None:
            return f"{self.repo_id}@{self.revision}"
        return f"{self.repo_id}{self.specifier or ''}"


def parse_requirement(text: str) -> Requirement:
    """Parse a requirement; white space around its parts does not matter.

    Raises:
        RequirementError: with the column of the fault and what to write instead.
    """
    start = len(text) - len(text.lstrip())
    end = len(text.rstrip())
    repo = _REPO.match(text, start, end)
    if repo is None:
        raise _error(text, "expected a repository", start)
    if fault := repo_id_fault(repo.group()):
        raise _error(text, fault, start)
    position = _skip_space(text, repo.end())
    if position >= end:
        return Requirement(repo_id=repo.group())
    if text[position] == "@":
        return Requirement(repo_id=repo.group(), revision=_revision(text, position + 1, end))
    return Requirement(repo_id=repo.group(), specifier=_specifier(text, position, end))


def pinned(repo_id: str, pin: str) -> Requirement:
    """A repository and a pin (">=1,<3", "@main") that were given apart.

    Raises:
        RequirementError: as `parse_requirement`; or the pin is none, and would only make the name
            of another repository.
    """
    if not pin.lstrip().startswith(_PINS):
        reason = f"expected one of {' '.join(_OPERATORS)}, or '@'"
        raise _error(f"{repo_id}{pin}", reason, len(repo_id))
    return parse_requirement(f"{repo_id}{pin}")


def _revision(text: str, position: int, end: int) -> str:
    position = _skip_space(text, position)
    revision = text[position:end] if position < end else ""
    if fault := "a revision must follow '@'" if not revision else revision_fault(revision):
        raise _error(text, fault, position)
    return revision


def _specifier(text: str, position: int, end: int) -> SpecifierSet:
    start = position
    clauses: list[tuple[str, int]] = []
    while True:
        clause = _CLAUSE.match(text, position, end)
        if clause is None:
            raise _error(text, f"expected one of {' '.join(_OPERATORS)}, or '@'", position)
        clauses.append(_clause(text, clause))
        position = _skip_space(text, clause.end())
        if position >= end:
            break
        if text[position] != ",":
            raise _error(text, "expected ',' or the end", position)
        position = _skip_space(text, position + 1)
    specifier = SpecifierSet(",".join(f"{operator}{version}" for operator, version in clauses))
    bounds = {0} | {v + step for _, v in clauses for step in (-1, 0, 1) if v + step >= 0}
    if not any(specifier.contains(str(v), prereleases=True) for v in bounds):
        raise _error(text, "no version can satisfy this", start)
    return specifier


def _clause(text: str, clause: re.Match[str]) -> tuple[str, int]:
    operator, version = clause["op"], clause["version"]
    if operator not in _OPERATORS:
        raise _error(text, f"kernel versions cannot be compared by {operator!r}", clause.start())
    if not _VERSION.fullmatch(version):
        raise _error(
            text,
            f"kernel versions are integers, not {version!r}" if version else "a version is missing",
            clause.start("version"),
        )
    return operator, int(version)


def _skip_space(text: str, position: int) -> int:
    while position < len(text) and text[position].isspace():
        position += 1
    return position


def _error(text: str, reason: str, index: int) -> RequirementError:
    return RequirementError(text, reason, column=index + 1, hint=_FORMS)
