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
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field

from kernelhub.errors import FormatError, Problem, RequirementError

from .content import content_fault
from .models import Received, problem, shown, validate
from .requirement import Requirement, parse_requirement
from .scalars import Commit, ReceivedVersion, RelativePath, RepoId, Text, custom_error
from .toml_lines import Positions, decode_text, load_toml

SCHEMA = 1
NAME = "kernelhub.lock"
_ANEW = "mend it, or remove the file and run `kernelhub lock`"
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


def _content(value: str) -> str:
    if fault := content_fault(value):
        raise custom_error(fault)
    return value


def _dependency(value: str) -> str:
    try:
        parse_requirement(value)
    except RequirementError as error:
        raise custom_error(error.reason, error.hint) from error
    return value


class KernelTable(Received):
    """One kernel at one commit."""

    repo_id: RepoId = Field(description="Repository of the kernel.", examples=["org/kernel"])
    requirement: Text | None = Field(
        None, description='What the project asks for, "*" for the newest.', examples=[">=1,<3"]
    )
    version: ReceivedVersion | None = Field(None, description="Version that it resolved from.")
    commit: Commit = Field(description="Full commit id.")
    dependencies: tuple[Annotated[Text, AfterValidator(_dependency)], ...] = Field(
        (), description="Kernels that it loads.", examples=[["org/norms==1"]]
    )
    variants: dict[RelativePath, Annotated[Text, AfterValidator(_content)]] = Field(
        default_factory=dict, description="Content digest of each variant."
    )


class LockToml(Received):
    """The tables of a lock."""

    model_config = ConfigDict(title="kernelhub.lock")

    schema_version: Literal[1] = Field(alias="schema", description="Major version of the format.")
    kernel: tuple[KernelTable, ...] = Field((), description="The locked kernels.")


def parse_lock(data: str | bytes, path: str = NAME) -> Lock:
    """Read a lock file.

    Args:
        data: its text, or its bytes as they are on disk.
        path: its name in error texts.

    Raises:
        FormatError: every fault, each with its line; conflict markers of a merge and a newer major
            version are refused with what to do about them.
    """
    text = decode_text(data, path)
    if markers := _conflict_markers(text, path):
        raise FormatError(path, markers, hint=_MERGE)
    raw, positions = load_toml(text, path)
    if (wrong := _schema_problem(raw, path, positions)) is not None:
        raise FormatError(path, [wrong])
    model, errors = validate(LockToml, raw)
    found = [
        problem(e, model=LockToml, path=path, position=lambda where, _: positions.value(where))
        for e in errors
    ]
    if model is None:
        raise FormatError(path, found, hint=_ANEW)
    kernels: list[LockedKernel] = []
    for index, entry in enumerate(model.kernel):
        try:
            kernels.append(_locked(entry))
        except RequirementError as error:  # noqa: PERF203 - every fault is told at once
            message = f"requirement {entry.requirement!r}: {error.reason}"
            found.append(_at(positions, ("kernel", index, "requirement"), path, message))
    found += _repeated(kernels, path, positions)
    if found:
        raise FormatError(path, found, hint=_ANEW)
    return Lock(kernels=tuple(sorted(kernels, key=sort_key)))


def _locked(entry: KernelTable) -> LockedKernel:
    stated = entry.requirement
    requirement = None
    if stated is not None:
        requirement = parse_requirement(entry.repo_id + ("" if stated == "*" else stated))
    return LockedKernel(
        repo_id=entry.repo_id,
        requirement=requirement,
        version=entry.version,
        commit=entry.commit,
        variants=dict(sorted(entry.variants.items())),
        dependencies=tuple(sorted(entry.dependencies)),
    )


def _repeated(kernels: list[LockedKernel], path: str, positions: Positions) -> list[Problem]:
    found: list[Problem] = []
    seen: dict[tuple[str, str], int] = {}
    direct: dict[str, int] = {}
    for index, kernel in enumerate(kernels):
        first = seen.setdefault((kernel.repo_id, kernel.commit), index)
        if first != index:
            message = f"{kernel.repo_id} is listed twice at commit {kernel.commit[:12]}"
            found.append(_at(positions, ("kernel", index, "repo-id"), path, message))
        elif kernel.requirement and direct.setdefault(kernel.repo_id, index) != index:
            message = f"{kernel.repo_id} is listed twice with a requirement of the project"
            found.append(_at(positions, ("kernel", index, "requirement"), path, message))
    return found


def _at(positions: Positions, where: tuple[int | str, ...], path: str, message: str) -> Problem:
    line, column = positions.value(where)
    return Problem(message=message, path=path, line=line, column=column, code="lock")


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


def _schema_problem(raw: Mapping[str, Any], path: str, positions: Positions) -> Problem | None:
    schema = raw.get("schema")
    if type(schema) is int and schema == SCHEMA:
        return None
    line, column = positions.value(("schema",))
    if type(schema) is int and schema > SCHEMA:
        message = f"schema {schema} is of a newer kernelhub; this one reads {SCHEMA}"
        hint = "pip install --upgrade kernelhub"
    elif "schema" not in raw:
        message, hint = "the schema number is missing", f"its first line is schema = {SCHEMA}"
    else:
        message, hint = f"expected the schema number {SCHEMA}, found {shown(schema)}", _ANEW
    return Problem(
        message=message, path=path, at="schema", line=line, column=column, hint=hint, code="schema"
    )
