"""Organisations: who may be trusted to publish kernels that run without being asked about.

`orgs.toml` below the root, read when the Hub starts:

    [demo]
    fullname = "Demo Kernels"
    trusted = true
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelhub.errors import FormatError, Problem

from .address import is_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(frozen=True, slots=True, kw_only=True)
class Organisation:
    """One publisher."""

    name: str
    fullname: str
    trusted: bool = False

    def overview(self) -> dict[str, Any]:
        """The object that `organizations/<name>/overview` answers."""
        return {
            "name": self.name,
            "fullname": self.fullname,
            "avatarUrl": "",
            "isVerified": self.trusted,
            "trustedKernelPublisher": self.trusted,
        }


def read_organisations(path: Path, trusted: Iterable[str] = ()) -> dict[str, Organisation]:
    """Read `orgs.toml` where there is one; names in `trusted` are trusted whatever it says.

    Raises:
        FormatError: with every fault of the file.
    """
    table = read_toml(path) if path.exists() else {}
    problems: list[Problem] = []
    found: dict[str, Organisation] = {}
    for name, facts in table.items():
        problems += _faults(name, facts, path.name)
        if not problems:
            found[name] = Organisation(
                name=name,
                fullname=facts.get("fullname", name),
                trusted=facts.get("trusted", False),
            )
    if problems:
        raise FormatError(str(path), problems)
    for name in trusted:
        known = found.get(name)
        found[name] = Organisation(
            name=name, fullname=known.fullname if known else name, trusted=True
        )
    return found


def _faults(name: str, facts: object, file: str) -> list[Problem]:
    if not is_name(name):
        return [Problem(path=file, at=name, message="not a usable organisation name")]
    if not isinstance(facts, dict):
        return [Problem(path=file, at=name, message="expected a table")]
    kinds = {"fullname": str, "trusted": bool}
    return [
        Problem(path=file, at=f"{name}.{key}", message="unknown key, or a value of the wrong type")
        for key, value in facts.items()
        if key not in kinds or not isinstance(value, kinds[key])
    ]


def read_toml(path: Path) -> dict[str, Any]:
    """Parse a settings file.

    Raises:
        FormatError: it is not TOML, not UTF-8, or cannot be read.
    """
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise FormatError(str(path), [Problem(path=path.name, message=str(error))]) from error
