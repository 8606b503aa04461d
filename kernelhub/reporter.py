"""Progress, seen from library code: a Reporter whose methods do nothing.

The command lines install one that draws bars or prints JSON events. Library code calls these and
never prints. This module is a leaf like `errors`.
"""

from __future__ import annotations


class Reporter:
    """Override what you want to hear of. Methods are called from one thread at a time."""

    def stage(self, name: str, total: int | None = None, unit: str = "") -> None:
        """A stage begins. `total` counts in `unit` ("bytes", "measurements"), None if unknown."""

    def advance(self, amount: int = 1, note: str = "") -> None:
        """The current stage moved on by `amount`; `note` is short text such as the best so far."""

    def done(self, note: str = "") -> None:
        """The current stage ended."""

    def say(self, text: str) -> None:
        """One line that a person should see."""

    def event(self, kind: str, **facts: object) -> None:
        """One machine-readable fact (a `--json` event); values must be JSON."""


SILENT = Reporter()
