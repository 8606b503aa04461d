"""`metadata.json` of a variant: HF's keys, and ours under the one key "kernelhub".

HF's client ignores that key, as every reader ignores keys that it does not know. Ours has a schema
number of its own; a reader refuses a number that it does not know.

Every load reads one, so what is as it should be is read here without pydantic, whose import takes
longer than the rest of a load. `metadata_model` judges what is not, and has the last word.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, get_args

from kernelhub.errors import FormatError, Problem

from .digest import Algorithm, Digest, faults
from .json_text import load_json
from .names import repo_id_fault
from .text_faults import (
    COMMIT,
    dependency_fault,
    git_url_fault,
    minver_fault,
    received_name_fault,
    specifier_fault,
    unicode_fault,
)
from .variant import BACKENDS, FRAMEWORKS, Backend, Framework

SCHEMA = 1
_LARGEST = 2**64 - 1
_KEYS = {"extension": "kernelhub", "schema_version": "schema"}


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelDependency:
    """Another kernel that this one loads: exactly one of `version` and `revision`."""

    repo_id: str
    version: int | None = None
    revision: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendInfo:
    """What a variant runs on; `archs` such as "9.0" or "gfx942", None for any."""

    type: Backend
    archs: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GitState:
    """HEAD of a git checkout, and whether tracked files were changed."""

    commit: str
    dirty: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BuilderVersion:
    """The builder that made a variant; `commit` and `dirty` are known together or not at all."""

    version: str
    commit: str | None = None
    dirty: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Where a build came from: the builder, and the kernel's own checkout."""

    kernel_builder: BuilderVersion
    kernel: GitState | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelhubExtension:
    """What HF's format has no place for. Read from the key "kernelhub".

    Attributes:
        framework: what the kernel's tensors belong to.
        languages: what its kernels are written in ("triton", "pallas", ...).
        requires: tool ("torch", "triton", "jax", ...) to PEP 440 specifiers.
        dependencies: Python packages that it imports (PEP 508).
    """

    schema_version: int = SCHEMA
    framework: Framework = "torch"
    languages: tuple[str, ...] = ()
    requires: Mapping[str, str] = field(default_factory=dict)
    dependencies: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """One variant's `metadata.json`; what each key means is in its JSON Schema."""

    name: str
    id: str
    version: int
    kernels_minver: str | None = None
    license: str
    upstream: str | None = None
    source: str | None = None
    python_depends: tuple[str, ...]
    kernel_depends: tuple[KernelDependency, ...] = ()
    backend: BackendInfo
    digest: Digest | None = None
    provenance: Provenance | None = None
    extension: KernelhubExtension | None = None


def parse_metadata(data: bytes, path: str = "metadata.json") -> Metadata:
    """Read a `metadata.json`. Unknown keys are ignored, also below known ones.

    Args:
        data: the bytes of the file.
        path: name of the file in error texts.

    Raises:
        FormatError: no JSON, or values that are missing or wrong; every fault at once.
    """
    raw = load_json(data, path)
    try:
        return _metadata(raw)
    except _Unusual:
        from .metadata_model import judge  # imports pydantic

        plain, problems = judge(raw, path)
    if plain is None:
        raise FormatError(path, problems)
    return _metadata(plain)


def render_metadata(metadata: Metadata) -> bytes:
    """The bytes of a `metadata.json`: HF's key order, 2 spaces, no newline at the end.

    Raises:
        FormatError: the digest names files that cannot be published.
    """
    if metadata.digest is not None and (wrong := faults(metadata.digest)):
        found = [Problem(message=why, path=name, code="digest") for name, why in wrong.items()]
        raise FormatError("metadata.json", found, hint="rename or remove these files")
    return json.dumps(metadata_value(metadata), indent=2, ensure_ascii=False).encode()


def metadata_value(metadata: Metadata) -> dict[str, Any]:
    """What `render_metadata` writes, as plain values: what is None is left out."""
    value: dict[str, Any] = _plain(metadata)
    if metadata.digest is not None:
        files = sorted(metadata.digest.files.items(), key=lambda item: item[0].encode())
        value["digest"]["files"] = dict(files)
    return value


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        held = ((name.name, getattr(value, name.name)) for name in fields(value))
        return {_key(name): _plain(inner) for name, inner in held if inner is not None}
    if isinstance(value, tuple):
        return [_plain(inner) for inner in value]
    return dict(value) if isinstance(value, Mapping) else value


def _key(attribute: str) -> str:
    return _KEYS.get(attribute, attribute.replace("_", "-"))


class _Unusual(Exception):
    """Something that is wrong, or right in a way that is seldom seen."""


def _metadata(raw: Any) -> Metadata:
    table = _table(raw)
    return Metadata(
        name=_text(table.get("name"), received_name_fault),
        id=_text(table.get("id")),
        version=_version(table.get("version")),
        kernels_minver=_optional(table, "kernels-minver", lambda v: _text(v, minver_fault)),
        license=_text(table.get("license")),
        upstream=_optional(table, "upstream", lambda v: _text(v, git_url_fault)),
        source=_optional(table, "source", lambda v: _text(v, git_url_fault)),
        python_depends=tuple(map(_text, _list(table.get("python-depends")))),
        kernel_depends=tuple(map(_kernel_dependency, _list(table.get("kernel-depends", [])))),
        backend=_backend(_table(table.get("backend"))),
        digest=_optional(table, "digest", _digest),
        provenance=_optional(table, "provenance", _provenance),
        extension=_optional(table, "kernelhub", _extension),
    )


def _kernel_dependency(raw: Any) -> KernelDependency:
    table = _table(raw)
    if len(table) != 2 or not table.keys() <= {"repo-id", "version", "revision"}:
        raise _Unusual
    return KernelDependency(
        repo_id=_text(table.get("repo-id"), repo_id_fault),
        version=_version(table["version"]) if "version" in table else None,
        revision=_text(table["revision"]) if "revision" in table else None,
    )


def _backend(table: Mapping[str, Any]) -> BackendInfo:
    archs = _optional(table, "archs", lambda v: tuple(map(_text, _list(v))))
    return BackendInfo(type=_one_of(table.get("type"), BACKENDS), archs=archs)


def _digest(raw: Any) -> Digest:
    table = _table(raw)
    algorithm = _one_of(table.get("algorithm"), get_args(Algorithm))
    files = {_text(path): _text(value) for path, value in _table(table.get("files")).items()}
    digest = Digest(algorithm=algorithm, files=files)
    if faults(digest):
        raise _Unusual
    return digest


def _provenance(raw: Any) -> Provenance:
    table = _table(raw)
    builder = _table(table.get("kernel-builder"))
    state = _git_state(builder) if {"commit", "dirty", "sha"} & builder.keys() else None
    return Provenance(
        kernel_builder=BuilderVersion(
            version=_text(builder.get("version")),
            commit=state.commit if state else None,
            dirty=state.dirty if state else None,
        ),
        kernel=_optional(table, "kernel", lambda v: _git_state(_table(v))),
    )


def _git_state(table: Mapping[str, Any]) -> GitState:
    commit, dirty = _text(table.get("commit")), table.get("dirty")
    if not COMMIT.fullmatch(commit) or not isinstance(dirty, bool) or "sha" in table:
        raise _Unusual
    return GitState(commit=commit.lower(), dirty=dirty)


def _extension(raw: Any) -> KernelhubExtension:
    table = _table(raw)
    if type(table.get("schema")) is not int or table["schema"] != SCHEMA:
        raise _Unusual
    requires = _table(table.get("requires", {}))
    return KernelhubExtension(
        framework=_one_of(table.get("framework", "torch"), FRAMEWORKS),
        languages=tuple(map(_text, _list(table.get("languages", [])))),
        requires={_text(tool): _text(v, specifier_fault) for tool, v in requires.items()},
        dependencies=tuple(
            _text(v, dependency_fault) for v in _list(table.get("dependencies", []))
        ),
    )


def _optional(table: Mapping[str, Any], key: str, read: Callable[[Any], Any]) -> Any:
    value = table.get(key)
    return None if value is None else read(value)


def _table(value: Any) -> dict[str, Any]:
    if type(value) is not dict:
        raise _Unusual
    return value


def _list(value: Any) -> list[Any]:
    if type(value) is not list:
        raise _Unusual
    return value


def _text(value: Any, fault_of: Callable[[str], str | None] | None = None) -> str:
    if type(value) is not str or unicode_fault(value) or (fault_of and fault_of(value)):
        raise _Unusual
    return value


def _version(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= _LARGEST:
        raise _Unusual
    return value


def _one_of(value: Any, legal: Iterable[Any]) -> Any:
    if type(value) is not str or value not in legal:
        raise _Unusual
    return value
