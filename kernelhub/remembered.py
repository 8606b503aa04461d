"""What a Hub said about one repository, kept for when it cannot be asked. Values only, no I/O.

Remembered are the commits that versions and other revisions stood at, when that was asked, and
which commits were allowed to run because their publisher was trusted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

SCHEMA = 1
_HISTORY = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """The memory of one repository.

    Attributes:
        versions: version to commit, as the Hub said last.
        asked: when that was, seconds since 1970; 0 if never.
        history: version to the commits that it stood at, newest first.
        revisions: branch or tag to (commit, when that was asked).
        trusted: commits that ran because their publisher was trusted.
    """

    versions: Mapping[int, str] = field(default_factory=dict)
    asked: float = 0.0
    history: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    revisions: Mapping[str, tuple[str, float]] = field(default_factory=dict)
    trusted: frozenset[str] = frozenset()

    def with_versions(self, versions: Mapping[int, str], asked: float) -> Remembered:
        """This, after the Hub has answered `versions`."""
        history = dict(self.history)
        for version, commit in versions.items():
            older = [c for c in history.get(version, ()) if c != commit]
            history[version] = (commit, *older)[:_HISTORY]
        return replace(self, versions=dict(versions), asked=asked, history=history)

    def with_known(self, version: int, commit: str) -> Remembered:
        """This, after `commit` came here as `version`, from a lock or a bundle and not the Hub."""
        known = self.history.get(version, ())
        if commit in known:
            return self
        return replace(self, history={**self.history, version: (*known[: _HISTORY - 1], commit)})

    def with_revision(self, revision: str, commit: str, asked: float) -> Remembered:
        """This, after the Hub has answered that `revision` stands at `commit`."""
        return replace(self, revisions={**self.revisions, revision: (commit, asked)})

    def with_trusted(self, commit: str) -> Remembered:
        """This, after `commit` was allowed for its publisher's sake."""
        return replace(self, trusted=self.trusted | {commit})


def render(memory: Remembered) -> bytes:
    """The bytes to keep; `parse` reads them."""
    value = {
        "schema": SCHEMA,
        "versions": {str(v): c for v, c in sorted(memory.versions.items())},
        "asked": memory.asked,
        "history": {str(v): list(c) for v, c in sorted(memory.history.items())},
        "revisions": {r: list(v) for r, v in sorted(memory.revisions.items())},
        "trusted": sorted(memory.trusted),
    }
    return json.dumps(value, indent=1).encode()


def parse(data: bytes) -> Remembered | None:
    """What `render` wrote, or None if this is something else (damaged, or of a newer release)."""
    try:
        value: Any = json.loads(data)
        if value["schema"] != SCHEMA:
            return None
        return Remembered(
            versions={int(v): str(c) for v, c in value["versions"].items()},
            asked=float(value["asked"]),
            history={int(v): tuple(map(str, c)) for v, c in value["history"].items()},
            revisions={str(r): (str(c), float(t)) for r, (c, t) in value["revisions"].items()},
            trusted=frozenset(map(str, value["trusted"])),
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
        return None
