"""What a build of the present files consists of: every byte of it, before anything is written."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from kernelhub.errors import InputError
from kernelhub.formats.digest import encode
from kernelhub.hashing import CHUNK

from .languages import package_languages
from .manifest import VariantFacts, make_metadata, variants_of
from .ops import render_ops
from .project import OPS_MODULE, Project


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFile:
    """One file of a variant.

    Attributes:
        path: relative to the variant, with `/`.
        source: where the bytes are; None for a generated file, whose bytes are `content`.
        sha256: hash of the bytes, hexadecimal.
        size: in bytes.
    """

    path: str
    source: Path | None
    content: bytes = b""
    sha256: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedVariant:
    """One variant folder: its files without `metadata.json`, and the bytes of that."""

    name: str
    files: tuple[PlannedFile, ...]
    metadata: bytes


def plan_build(project: Project) -> tuple[PlannedVariant, ...]:
    """Everything that a build of the project's present files consists of.

    Raises:
        InputError: a source file cannot be read.
    """
    planned = []
    for framework, package in sorted(project.packages.items()):
        files = [_read_source(package.folder, name) for name in package.files]
        uid = _unique_id(project, framework, files)
        if framework == "torch":
            ops = render_ops(project.build_file.python_name, uid)
            files.append(_generated(OPS_MODULE, ops))
        files.sort(key=lambda file: os.fsencode(file.path))
        languages = package_languages(project, framework)
        digest = {file.path: encode(bytes.fromhex(file.sha256)) for file in files}
        for variant in variants_of(project.build_file, framework):
            facts = VariantFacts(variant=variant, uid=uid, files=digest, languages=languages)
            planned.append(
                PlannedVariant(
                    name=str(variant),
                    files=tuple(files),
                    metadata=make_metadata(project.build_file, facts),
                )
            )
    return tuple(planned)


def _unique_id(project: Project, framework: str, files: list[PlannedFile]) -> str:
    """12 hexadecimal digits of the name, version and every byte of the package."""
    state = hashlib.sha256()
    build_file = project.build_file
    state.update(f"{framework}\n{build_file.name}\n{build_file.version}\n".encode())
    for file in files:
        state.update(f"{file.sha256} {file.path}\n".encode())
    return state.hexdigest()[:12]


def _read_source(folder: Path, name: str) -> PlannedFile:
    source = folder / name
    state = hashlib.sha256()
    size = 0
    try:
        with source.open("rb") as stream:
            while chunk := stream.read(CHUNK):
                state.update(chunk)
                size += len(chunk)
    except OSError as error:
        raise InputError(f"cannot read {source}: {error.strerror}") from error
    return PlannedFile(path=name, source=source, sha256=state.hexdigest(), size=size)


def _generated(path: str, content: bytes) -> PlannedFile:
    sha256 = hashlib.sha256(content).hexdigest()
    return PlannedFile(path=path, source=None, content=content, sha256=sha256, size=len(content))
