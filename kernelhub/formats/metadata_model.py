"""The model of `metadata.json`: what every key must be, for its JSON Schema and its faults.

`metadata` reads what is as it should be by itself; this judges everything else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

from pydantic import AliasChoices, ConfigDict, Field, StrictBool, model_validator

from kernelhub.errors import Problem

from .digest import Algorithm, Digest, faults
from .models import Received, problem, shown, validate
from .scalars import (
    Commit,
    Dependency,
    GitUrl,
    MajorMinorPatch,
    ReceivedName,
    ReceivedVersion,
    RepoId,
    Specifier,
    Text,
    custom_error,
)
from .variant import Backend, Framework

SCHEMA = 1
_LANGUAGES = ("triton", "gluon", "pallas", "helion", "torch")
_TOOLS = ("python", "torch", "triton", "jax", "helion")


class KernelDependency(Received):
    """Another kernel that this one loads: exactly one of `version` and `revision`."""

    model_config = ConfigDict(extra="forbid")

    repo_id: RepoId = Field(description="Repository of the kernel.", examples=["org/kernel"])
    version: ReceivedVersion | None = Field(None, description="Its version.")
    revision: Text | None = Field(None, description="A branch, tag or commit instead.")

    @model_validator(mode="after")
    def _exactly_one(self) -> KernelDependency:
        if (self.version is None) == (self.revision is None):
            raise custom_error("expected exactly one of 'version' and 'revision'")
        return self


class BackendInfo(Received):
    """What a variant runs on."""

    type: Backend = Field(description="The backend.")
    archs: tuple[Text, ...] | None = Field(
        None, description='Architectures it was made for, such as "9.0" or "gfx942"; null is any.'
    )


def _one_commit(raw: object) -> object:
    """HF's reader knows `sha` as an older name of `commit`, and takes neither twice nor as null."""
    if isinstance(raw, dict):
        if "commit" in raw and "sha" in raw:
            raise custom_error("'commit' is given twice, once under its older name 'sha'")
        if any(raw.get(key, "") is None for key in ("commit", "sha", "dirty")):
            raise custom_error("'commit' and 'dirty' may be left out but not null")
    return raw


class GitState(Received):
    """State of a git checkout."""

    _check_commit = model_validator(mode="before")(_one_commit)

    commit: Commit = Field(
        description="Commit of HEAD, 40 or 64 hexadecimal digits.",
        validation_alias=AliasChoices("commit", "sha"),
    )
    dirty: StrictBool = Field(description="Whether tracked files were changed.")


class BuilderVersion(Received):
    """The builder that made a variant; `commit` and `dirty` are known together or not at all."""

    _check_commit = model_validator(mode="before")(_one_commit)

    version: Text = Field(description="Version of the builder.")
    commit: Commit | None = Field(None, validation_alias=AliasChoices("commit", "sha"))
    dirty: StrictBool | None = None

    @model_validator(mode="after")
    def _together(self) -> BuilderVersion:
        if (self.commit is None) != (self.dirty is None):
            raise custom_error("'commit' and 'dirty' must be given together")
        return self


class Provenance(Received):
    """Where a build came from."""

    kernel_builder: BuilderVersion = Field(description="The builder.")
    kernel: GitState | None = Field(None, description="The kernel's own checkout.")


class KernelhubExtension(Received):
    """What HF's format has no place for. Read from the key "kernelhub"."""

    model_config = ConfigDict(json_schema_extra={"required": ["schema"]})

    schema_version: Literal[1] = Field(
        1,
        description="Major version of this object; readers refuse one that they do not know.",
        title="schema",
        validation_alias="schema",
        serialization_alias="schema",
    )
    framework: Framework = Field("torch", description="What the kernel's tensors belong to.")
    languages: tuple[Text, ...] = Field(
        (), description=f"What its kernels are written in: {', '.join(_LANGUAGES)}."
    )
    requires: dict[Text, Specifier] = Field(
        default_factory=dict,
        description=f"PEP 440 specifiers of tools: {', '.join(_TOOLS)}.",
    )
    dependencies: tuple[Dependency, ...] = Field(
        (), description="Python packages that it imports (PEP 508)."
    )


class Metadata(Received):
    """One variant's `metadata.json`."""

    model_config = ConfigDict(title="metadata.json")

    name: ReceivedName = Field(description="The kernel's name.")
    id: Text = Field(description="Name that is unique to this build and variant.")
    version: ReceivedVersion = Field(description="The kernel's version, 0 while it is unstable.")
    kernels_minver: MajorMinorPatch | None = Field(
        None, description="Least version of HF's client that can load it."
    )
    license: Text = Field(description="Licence of the kernel.")
    upstream: GitUrl | None = Field(None, description="Git URL of the project it comes from.")
    source: GitUrl | None = Field(None, description="Git URL of the kernel's source.")
    python_depends: tuple[Text, ...] = Field(
        description="Packages out of the list that HF's client knows."
    )
    kernel_depends: tuple[KernelDependency, ...] = Field((), description="Kernels that it loads.")
    backend: BackendInfo = Field(description="What it runs on.")
    digest: Digest | None = Field(None, description="Hashes of its files.")
    provenance: Provenance | None = Field(None, description="Where the build came from.")
    extension: KernelhubExtension | None = Field(
        None,
        description="What HF's format has no place for.",
        title="kernelhub",
        validation_alias="kernelhub",
        serialization_alias="kernelhub",
    )


def judge(raw: object, path: str) -> tuple[dict[str, Any] | None, list[Problem]]:
    """What a metadata.json says, in its plainest form, or everything that is wrong with it.

    Args:
        raw: the parsed JSON.
        path: name of the file in the problems.
    """
    if not isinstance(raw, dict):
        return None, [Problem(message=f"expected an object, found {shown(raw)}", path=path)]
    found = _schema_problems(raw, path)
    if found:
        raw = {key: value for key, value in raw.items() if key != "kernelhub"}
    metadata, errors = validate(Metadata, raw)
    found += [
        problem(error, model=Metadata, path=path, position=lambda *_: None) for error in errors
    ]
    found += _digest_problems(raw.get("digest"), path)
    if found or metadata is None:
        return None, found
    return metadata.model_dump(mode="json", by_alias=True, exclude_none=True), []


def _schema_problems(raw: Mapping[str, object], path: str) -> list[Problem]:
    extension = raw.get("kernelhub")
    if not isinstance(extension, dict):
        return []
    schema = extension.get("schema")
    if type(schema) is int and schema == SCHEMA:
        return []
    is_newer = type(schema) is int and schema > SCHEMA
    message = f"expected the schema number {SCHEMA}, found {shown(schema)}"
    hint = "a newer kernelhub wrote it: pip install --upgrade kernelhub" if is_newer else None
    return [Problem(message=message, path=path, at="kernelhub.schema", hint=hint, code="schema")]


def _digest_problems(raw: object, path: str) -> list[Problem]:
    """Faults of the digest's content; its types are pydantic's business."""
    if not isinstance(raw, dict) or not isinstance(raw.get("files"), dict):
        return []
    algorithm = next((a for a in get_args(Algorithm) if a == raw.get("algorithm")), None)
    if algorithm is None:
        return []
    files = {name: value for name, value in raw["files"].items() if isinstance(value, str)}
    digest = Digest(algorithm=algorithm, files=files)
    return [
        Problem(message=why, path=path, at=f"digest.files[{name!a}]", code="digest")
        for name, why in faults(digest).items()
    ]
