"""Faults of a build.toml that concern more than one value, found before the models see it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernelhub.errors import Problem

from .build_model import EDITION
from .models import Location, dotted, shown
from .toml_lines import Positions

_COMPILED = ("torch", "tvm-ffi", "kernel")
_FRAMEWORK_TABLES = {"torch": "torch-noarch", "jax": "jax-noarch"}
_SPELLINGS = (("cuda_capabilities", "cuda-capabilities"), ("rocm_archs", "rocm-archs"))


def edition_problem(raw: Mapping[str, Any], path: str, where: Positions) -> Problem | None:
    """The fault of a file of another edition, or None. A file without [general] has none here."""
    general = raw.get("general")
    if not isinstance(general, dict):
        return None
    edition = general.get("edition")
    if edition is not None and type(edition) is not int:
        return None  # a fault of type, which pydantic tells
    if edition == EDITION:
        return None
    if edition is None:
        message = f"this key is missing: expected edition = {EDITION} (older files have none)"
        line, column = where.key(("general",))
    else:
        message = f"edition {edition} is not read, expected edition = {EDITION}"
        line, column = where.value(("general", "edition"))
    return Problem(
        message=message,
        path=path,
        at="general.edition",
        line=line,
        column=column,
        hint=_edition_hint(edition),
        code="edition",
    )


def _edition_hint(edition: int | None) -> str:
    if edition is not None and edition > EDITION:
        return "`kernel-builder migrate` does not go back: pip install --upgrade kernelhub"
    if edition is not None and edition < 3:
        return "`kernel-builder migrate` reads editions 3 and 4 only: write the file anew"
    return "run `kernel-builder migrate`, which rewrites the file and keeps its comments"


def reads_as_edition_5(raw: Mapping[str, Any]) -> bool:
    """Whether a file without `edition` has a table that no edition before 4 had.

    Then the rest of it can be checked too; faults of an older file would only mislead.
    """
    return "edition" not in raw["general"] and bool({"torch-noarch", "jax-noarch"} & raw.keys())


def structure_problems(raw: Mapping[str, Any], path: str, where: Positions) -> list[Problem]:
    """Faults that concern more than one value."""

    def at(location: Location, message: str, hint: str | None, code: str) -> Problem:
        line, column = where.key(location)
        return Problem(
            message=message,
            path=path,
            at=dotted(location) or None,
            line=line,
            column=column,
            hint=hint,
            code=code,
        )

    found = [
        at(
            (table,),
            "this toolchain packs noarch kernels (Python source); compiled kernels are not built",
            "write [torch-noarch] or [jax-noarch], or build this kernel with HF's kernel-builder",
            "not-noarch",
        )
        for table in _COMPILED
        if table in raw and not _is_empty_kernel(table, raw)
    ]
    if not found and not set(_FRAMEWORK_TABLES.values()) & raw.keys():
        hint = "add a line [torch-noarch] or [jax-noarch]"
        found.append(at((), "no framework table", hint, "missing-key"))
    torch = raw.get("torch-noarch")
    for snake, kebab in _SPELLINGS:
        if isinstance(torch, dict) and snake in torch and kebab in torch:
            message = f"given twice, as {snake} and as {kebab}"
            found.append(at(("torch-noarch", kebab), message, "keep one of them", "given-twice"))
    for table in _FRAMEWORK_TABLES.values():
        for index, backend in _foreign_backends(raw, table):
            message = f"{shown(backend)} is not among general.backends"
            hint = "add it there, or remove it here"
            location = (table, "backends", index)
            found.append(at(location, message, hint, "invalid-value"))
    return found


def _is_empty_kernel(table: str, raw: Mapping[str, Any]) -> bool:
    """HF's parser takes an empty [kernel] beside a noarch framework; it says nothing."""
    return table == "kernel" and raw[table] == {}


def _foreign_backends(raw: Mapping[str, Any], table: str) -> list[tuple[int, object]]:
    general, framework = raw.get("general"), raw.get(table)
    if not isinstance(general, dict) or not isinstance(framework, dict):
        return []
    every, own = general.get("backends"), framework.get("backends")
    if not isinstance(every, list) or not isinstance(own, list):
        return []
    return [(i, b) for i, b in enumerate(own) if isinstance(b, str) and b not in every]


def without_reported(raw: Mapping[str, Any]) -> dict[str, Any]:
    """What pydantic shall see: without tables and keys that `structure_problems` has judged."""
    left = {key: value for key, value in raw.items() if key not in _COMPILED}
    torch = left.get("torch-noarch")
    if isinstance(torch, dict):
        twice = {kebab for snake, kebab in _SPELLINGS if snake in torch}
        left["torch-noarch"] = {k: v for k, v in torch.items() if k not in twice}
    return left
