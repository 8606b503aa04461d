"""`kernelhub.lock`: which commit and which bytes each kernel requirement stands for.

    schema = 1

    [[kernel]]
    repo-id = "org/flash-attn"
    requirement = ">=1,<3"
    version = 2
    commit = "715eaa24490779a6961cf24e2a849c25afdc7801"
    dependencies = ["org/norms==1"]

    [kernel.variants]
    torch-cpu = "sha256:..."
    torch-cuda = "sha256:..."

A kernel is in it once for each commit; `requirement` stands with those that the project itself asks
for ("*" is the newest), `dependencies` names what the kernel loads in turn. The values of
`variants` are content digests (`formats.content`). The schema number is the major version of this
format: keys may be added within one, and readers ignore those that they do not know.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kernelhub.errors import FormatError, Problem, RequirementError

from .content import content_fault
from .names import path_fault, repo_id_fault
from .requirement import Requirement, parse_requirement, pinned
from .text_faults import COMMIT, unicode_fault

SCHEMA = 1
NAME = "kernelhub.lock"
_MERGE = "take one side (`git checkout --ours` or `--theirs`), then run `kernelhub lock`"
_CONFLICT = re.compile(r"^(?:<{7}|={7}|>{7}|\|{7})(?: |\r?$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedKernel:
    """One kernel of a lock.

    Attributes:
        repo_id: "org/name".
        requirement: what the project asks for, None for one that only other kernels need.
        version: the version that it was resolved from, None for a branch, tag or commit.
        commit: full commit id.
        variants: name of each published noarch variant to its content digest.
        dependencies: requirements of kernels that it loads, such as "org/norms==1".
    """

    repo_id: str
    requirement: Requirement | None
    version: int | None
    commit: str
    variants: Mapping[str, str]
    dependencies: tuple[str, ...] = ()

    def serves(self, requirement: Requirement) -> bool:
        """Whether this is what a requirement for the same repository may stand for."""
        if requirement.revision is not None:
            mine = self.requirement.revision if self.requirement else None
            return requirement.revision in (self.commit, mine)
        if requirement.specifier is None:
            return True
        return self.version is not None and requirement.admits(self.version)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """A lock file's content, sorted by repository, then version, then commit."""

    kernels: tuple[LockedKernel, ...] = field(default=())

    def of(self, repo_id: str) -> tuple[LockedKernel, ...]:
        """Every entry of a repository."""
        return tuple(kernel for kernel in self.kernels if kernel.repo_id == repo_id)

    def find(self, requirement: Requirement) -> LockedKernel | None:
        """What a requirement stands for: the project's own entry first, then the newest version."""
        fits = [k for k in self.of(requirement.repo_id) if k.serves(requirement)]
        order = {id(k): (k.requirement is not None, -1 if k.version is None else k.version)
                 for k in fits}  # fmt: skip
        return max(fits, key=lambda k: order[id(k)], default=None)


def sort_key(kernel: LockedKernel) -> tuple[str, int, str]:
    """The order of entries in the file."""
    return kernel.repo_id, -1 if kernel.version is None else kernel.version, kernel.commit


def parse_lock(data: str | bytes, path: str = NAME) -> Lock:
    """Read a lock file.

    What is as it should be is read here without pydantic, whose import takes longer than the rest
    of a load; `lock_model` judges what is not.

    Args:
        data: its text, or its bytes as they are on disk.
        path: its name in error texts.

    Raises:
        FormatError: every fault, each with its line; conflict markers of a merge and a newer major
            version are refused with what to do about them.
    """
    from .toml_lines import decode_text, parse_toml  # most loads find no lock to read

    text = decode_text(data, path)
    if markers := _conflict_markers(text, path):
        raise FormatError(path, markers, hint=_MERGE)
    try:
        return _lock(parse_toml(text, path))
    except (_Unusual, RequirementError):
        from .lock_model import ANEW, judge  # imports pydantic

        plain, problems = judge(text, path)
    if plain is None:
        newer = any(problem.code == "schema" for problem in problems)
        raise FormatError(path, problems, hint=None if newer else ANEW)
    return _lock(plain)


class _Unusual(Exception):
    """Something that is wrong, or right in a way that is seldom seen."""


def _lock(raw: Any) -> Lock:
    tables = raw.get("kernel", [])
    if type(raw.get("schema")) is not int or raw["schema"] != SCHEMA or type(tables) is not list:
        raise _Unusual
    kernels = tuple(sorted(map(_locked, tables), key=sort_key))
    if len({(k.repo_id, k.commit) for k in kernels}) != len(kernels):
        raise _Unusual
    direct = [k.repo_id for k in kernels if k.requirement is not None]
    if len(set(direct)) != len(direct):
        raise _Unusual
    return Lock(kernels=kernels)


def _locked(table: Any) -> LockedKernel:
    if type(table) is not dict:
        raise _Unusual
    repo_id, commit = _text(table.get("repo-id")), _text(table.get("commit"))
    version = table.get("version")
    if repo_id_fault(repo_id) or not COMMIT.fullmatch(commit):
        raise _Unusual
    if version is not None and not (type(version) is int and 0 <= version < 2**64):
        raise _Unusual
    requirement = None
    if "requirement" in table:
        requirement = requirement_of(repo_id, _text(table["requirement"]))
    return LockedKernel(
        repo_id=repo_id,
        requirement=requirement,
        version=version,
        commit=commit.lower(),
        variants=_variants(table.get("variants", {})),
        dependencies=_dependencies(table.get("dependencies", [])),
    )


def requirement_of(repo_id: str, stated: str) -> Requirement:
    """The requirement that an entry states, such as ">=1,<3" or "*".

    Raises:
        RequirementError: it is none.
    """
    if stated == "*":
        return Requirement(repo_id=repo_id)
    return pinned(repo_id, stated)


def _variants(raw: Any) -> dict[str, str]:
    if type(raw) is not dict:
        raise _Unusual
    found = {_text(name): _text(value) for name, value in sorted(raw.items())}
    if any(path_fault(name) or content_fault(value) for name, value in found.items()):
        raise _Unusual
    return found


def _dependencies(raw: Any) -> tuple[str, ...]:
    if type(raw) is not list:
        raise _Unusual
    found = tuple(sorted(map(_text, raw)))
    for dependency in found:
        parse_requirement(dependency)
    return found


def _text(value: Any) -> str:
    if type(value) is not str or unicode_fault(value):
        raise _Unusual
    return value


def _conflict_markers(text: str, path: str) -> list[Problem]:
    return [
        Problem(
            message=f"conflict marker of a merge: {line.strip()[:40]}",
            path=path,
            line=number,
            column=1,
            code="conflict-marker",
        )
        for number, line in enumerate(text.split("\n"), 1)
        if _CONFLICT.match(line)
    ]
