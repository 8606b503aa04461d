"""What runs inside a worker process: one device, or a model of one.

A core may crash or hang its process; `process.ProcessRunner` outside of it deals with that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from kernel_builder.tuning.runner import Found, Outcome, Station, Task
from kernelhub.formats.tree import Config


class Marks(Protocol):
    """Says what is under way, so that a crash or a hang can be laid to its cause."""

    def begin(self, config: Config) -> None:
        """Work on a configuration begins. May be called from any thread."""

    def end(self, config: Config) -> None:
        """It pauses or is over; an outcome implies it."""


class Poisoned(Exception):
    """The device can no longer be used from this process: it must be started anew.

    Carries the outcome of the configuration that did it.
    """

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.detail)
        self.outcome = outcome


class Core(Protocol):
    """See `runner.Runner` for the meaning; a core handles no crash and no timeout.

    Raises (all methods):
        Poisoned: a candidate broke the device for this process.
        TuningError: the workload or the device is at fault, not a candidate.
    """

    def station(self) -> Station: ...

    def collect(self, notice: Callable[[Found], None]) -> list[Found]: ...

    def sources(self) -> dict[str, str]:
        """Hash of the source of every tunable, by dotted name. Launches nothing."""

    def counts(self) -> dict[str, int]:
        """What is worth knowing about the work so far, by name."""

    def check(
        self,
        task: Task,
        configs: Sequence[Config],
        base: Config | None,
        marks: Marks,
        *,
        serial: bool,
    ) -> Iterator[Outcome]:
        """`serial`: work on one configuration at a time, to find which of them crashes."""

    def measure(
        self, task: Task, configs: Sequence[Config], rounds: int, marks: Marks
    ) -> Iterator[Outcome]: ...
