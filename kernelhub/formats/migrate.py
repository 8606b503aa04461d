"""Older editions of `build.toml`, brought to edition 5 without losing comments or order.

Edition 4 is edition 5 without its number. Edition 3 has no [torch-noarch] table either (the absence
of a framework means noarch), its version defaults to 1 and its licence is optional. Only lines are
added (or one number replaced), so every other byte of the file stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernelhub.errors import FormatError, Problem

from .toml_lines import Positions, load_toml

EDITION = 5
_COMPILED = ("torch", "tvm-ffi", "kernel")


def to_edition_5(text: str, path: str) -> str:
    """The text with what edition 5 needs, for a file of edition 3 or 4.

    Raises:
        FormatError: something is missing that only its author knows, it builds compiled code, or
            it is of another edition.
    """
    raw, positions = load_toml(text, path)
    if found := _obstacles(raw, path, positions):
        raise FormatError(path, found, hint="nothing was changed")
    wanted = dict(raw) | {"general": {"version": 1, **raw["general"], "edition": EDITION}}
    wanted.setdefault("torch-noarch", {})
    body = _with_general(text.removeprefix("\ufeff"), raw["general"], positions)
    newline = "\r\n" if "\r\n" in text else "\n"
    if "torch-noarch" not in raw:
        body = body.rstrip() + newline * 2 + "[torch-noarch]" + newline
    if not _parses_to(body, wanted, path):
        message = "cannot add keys to [general] as it is written here"
        hint = "write it as a table of its own: [general], then one key a line"
        raise FormatError(path, [Problem(message=message, path=path, at="general", hint=hint)])
    return body


def _with_general(body: str, general: Mapping[str, Any], positions: Positions) -> str:
    if "edition" in general:
        start = positions.values["general", "edition"]
        return f"{body[:start]}{EDITION}{body[start:].lstrip('0123456789_+')}"
    anchor = "version" if "version" in general else "name"
    line, _ = positions.key(("general", anchor))
    lines = body.split("\n")
    before = lines[line - 1]
    prefix = before[: before.find(anchor)].rstrip(
        "\"'"
    )  # indentation, or "general." of a dotted key
    end = "\r" if before.endswith("\r") else ""
    added = [] if "version" in general else [f"{prefix}version = 1{end}"]
    return "\n".join([*lines[:line], *added, f"{prefix}edition = {EDITION}{end}", *lines[line:]])


def _parses_to(body: str, wanted: Mapping[str, Any], path: str) -> bool:
    try:
        return load_toml(body, path)[0] == wanted
    except FormatError:
        return False


def _obstacles(raw: Mapping[str, Any], path: str, positions: Positions) -> list[Problem]:
    def at(location: tuple[str, ...], message: str, hint: str | None, code: str) -> Problem:
        line, column = positions.key(location)
        dotted = ".".join(location) or None
        return Problem(
            message=message, path=path, at=dotted, line=line, column=column, hint=hint, code=code
        )

    general = raw.get("general")
    if not isinstance(general, dict):
        anew = "write the file anew, for example with `kernel-builder init`"
        return [
            at(
                (),
                "there is no [general] table, so this is no file of edition 3 to 5",
                anew,
                "edition",
            )
        ]
    found: list[Problem] = []
    edition = general.get("edition")
    if "edition" in general and (type(edition) is not int or edition not in (3, 4)):
        message = f"edition {edition!r} cannot be migrated, only 3 and 4"
        found.append(at(("general", "edition"), message, None, "edition"))
    if "universal" in general:
        message = "a file of edition 1 or 2 cannot be migrated"
        found.append(at(("general", "universal"), message, "write the file anew", "edition"))
    found += [
        at(
            (table,),
            "this table belongs to a compiled kernel, which this toolchain does not build",
            "migrate it with HF's `kernel-builder update-build`",
            "not-noarch",
        )
        for table in _COMPILED
        if raw.get(table) or (table in raw and table != "kernel")
    ]
    if "license" not in general:
        message = "edition 5 needs a licence, which only its author knows"
        hint = 'add for example license = "Apache-2.0" to [general]'
        found.append(at(("general", "license"), message, hint, "missing-key"))
    if "name" not in general:
        hint = 'add for example name = "my-kernel" to [general]'
        found.append(at(("general", "name"), "this key is missing", hint, "missing-key"))
    return found
