"""The seam to whatever times configurations: this machine's GPUs, a cluster, a cost model.

Tasks, stations and outcomes are plain data; a runner may live in another process or on another
host with another device. Nothing here imports a framework.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from kernelhub.formats.tree import Config, DeviceFacts, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Station:
    """Where and how a runner measures: equal stations give comparable times.

    Attributes:
        device: the accelerator.
        tools: versions that matter ("triton", "torch", "driver", "python").
        policy: how it measures, such as {"method": "cuda-graphs", "l2": "warm"}.
    """

    device: DeviceFacts
    tools: Mapping[str, str]
    policy: Mapping[str, Literal]


@dataclass(slots=True, kw_only=True)
class Found:
    """One distinct launch and what the author says about it.

    Attributes:
        kernel: dotted name of the tunable below the package.
        source: hash of the tunable's source.
        point: content hash of the launch.
        case: full name of the first case that makes it.
        features: what a tree may test.
        weight: sum over cases of the case's weight times the launches in one call.
        held_out: whether all cases that make it are held out.
        candidates: configurations that the author admits here, the default first.
        recipe: how another process of this machine compiles it, None if none can.
    """

    kernel: str
    source: str
    point: str
    case: str
    features: Mapping[str, Literal]
    weight: float
    held_out: bool
    candidates: list[Config] = field(default_factory=list)
    recipe: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One distinct launch, as a runner finds it again.

    Attributes:
        kernel: dotted name of the tunable below the package.
        case: the workload case whose call makes this launch.
        point: content hash of the launch.
        features: what a tree may test; a cost model computes from these.
    """

    kernel: str
    case: str
    point: str
    features: Mapping[str, Literal]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came out for one configuration: samples in ms, or a reason of `matrix.REASONS`.

    Neither means that the configuration passed its check and may be timed. `pruned`: the launch
    itself refuses it by the error for which dispatch takes the next in rank, so a tree that ranks
    it first does not fail there.
    """

    config: Config
    samples: tuple[float, ...] = ()
    reason: str | None = None
    detail: str = ""
    pruned: bool = False


class Runner(Protocol):
    """Checks and times configurations of one task after the other. Used by one thread at a time.

    A candidate that faults, hangs or cannot run is an outcome, never an exception.

    Raises (all methods):
        TuningError: the runner itself cannot go on: no device, or the workload is at fault.
    """

    @property
    def station(self) -> Station:
        """Where and how this runner measures."""

    def collect(self, notice: Callable[[Found], None] = lambda _: None) -> list[Found]:
        """Run the workloads once and find every distinct launch.

        Args:
            notice: may be called with a launch as it is found, before all of its weight is known.
        """

    def prepare(self, task: Task, configs: Sequence[Config]) -> None:
        """Compile these in the background, before all that was prepared earlier, if that is
        possible. Returns at once, raises nothing; may be called again for the same."""

    def check(
        self, task: Task, configs: Sequence[Config], base: Config | None = None
    ) -> Iterator[Outcome]:
        """Compile, run once, and compare the result with what is right: one outcome for each.

        Args:
            base: configuration whose result is right where the workload has no reference; None:
                the first of `configs` that runs.
        """

    def measure(self, task: Task, configs: Sequence[Config], rounds: int) -> Iterator[Outcome]:
        """Time configurations that passed `check` in this runner, interleaved.

        In each of `rounds` every configuration is sampled once, in changing order, so that drift
        of the device hits all alike. One outcome for each, with `rounds` samples or a reason.
        """

    def interrupt(self) -> None:
        """From another thread: end what is under way now; it has no more outcomes."""

    def effort(self) -> Mapping[str, float]:
        """Where time went so far: seconds of waiting by what for ("start", "collect", "compile",
        "check", "measure"), and counts by name. Empty where nothing is known."""

    def close(self) -> None:
        """Give the device back. Safe to call twice."""
