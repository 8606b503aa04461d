"""The model of `kernelhub.lock`: what every key must be, for its JSON Schema and its faults.

`lock` reads what is as it should be by itself; this finds what is wrong with everything else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field

from kernelhub.errors import Problem, RequirementError

from .content import content_fault
from .lock import requirement_of
from .models import Received, problem, shown, validate
from .requirement import parse_requirement
from .scalars import Commit, ReceivedVersion, RelativePath, RepoId, Text, custom_error
from .toml_lines import Positions, load_toml

SCHEMA = 1
ANEW = "mend it, or remove the file and run `kernelhub lock`"


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


def judge(text: str, path: str) -> tuple[dict[str, Any] | None, list[Problem]]:
    """What a lock says, in its plainest form, or everything that is wrong with it, with its place.

    Raises:
        FormatError: it is no TOML.
    """
    raw, positions = load_toml(text, path)
    if (wrong := _schema_problem(raw, path, positions)) is not None:
        return None, [wrong]
    model, errors = validate(LockToml, raw)
    found = [
        problem(e, model=LockToml, path=path, position=lambda where, _: positions.value(where))
        for e in errors
    ]
    if model is None:
        return None, found
    for index, entry in enumerate(model.kernel):
        found += _requirement_problems(entry, index, path, positions)
    found += _repeated(model.kernel, path, positions)
    return (None if found else model.model_dump(by_alias=True, exclude_none=True)), found


def _requirement_problems(
    entry: KernelTable, index: int, path: str, positions: Positions
) -> list[Problem]:
    try:
        requirement_of(entry.repo_id, "*" if entry.requirement is None else entry.requirement)
    except RequirementError as error:
        message = f"requirement {entry.requirement!r}: {error.reason}"
        return [_at(positions, ("kernel", index, "requirement"), path, message)]
    return []


def _repeated(kernels: tuple[KernelTable, ...], path: str, positions: Positions) -> list[Problem]:
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
        message, hint = f"expected the schema number {SCHEMA}, found {shown(schema)}", ANEW
    return Problem(
        message=message, path=path, at="schema", line=line, column=column, hint=hint, code="schema"
    )
