"""Chooses configurations for one tunable."""

from __future__ import annotations

from kernelhub.formats.tree import Config

from .adapter import Call, Tunable


class Dispatcher:
    """The choice for one tunable."""

    def __init__(self, tunable: Tunable) -> None:
        self.tunable = tunable

    def choose(self, call: Call) -> Config | None:
        """The configuration for this call, None where there is no tree."""
        return None
