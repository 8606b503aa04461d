"""One point on a GPU: its live launch, found again in this process, and what was made for it."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from kernel_builder.tuning.collect import OpenSite
from kernel_builder.tuning.runner import Outcome, Task
from kernel_builder.tuning.timing import Timed
from kernelhub.dispatch.capturing import LiveLaunch
from kernelhub.errors import TuningError


@dataclass(slots=True, kw_only=True)
class Bench:
    """One point with its live launch, and what is known about its configurations here."""

    task: Task
    live: LiveLaunch
    expected: Any = None
    base: str = ""  # key of the configuration that gave `expected`
    compiled: dict[str, Future[Outcome | None]] = field(default_factory=dict)
    timed: dict[str, Timed] = field(default_factory=dict)  # captured, for one sample each


class _SeenEnough(BaseException):
    """Ends a call at the launch that was looked for, before it runs: a default that cannot run
    here must not keep the others from being tried. Not an `Exception`: no author's code stops it.
    """

    def __init__(self, live: LiveLaunch) -> None:
        super().__init__()
        self.live = live


def find_live(site: OpenSite, task: Task) -> LiveLaunch:
    """The live launch of a task, with the arguments of its case.

    Raises:
        TuningError: its case no longer makes it.
    """
    workload, case = site.workloads.find(task.case)

    def notice(live: LiveLaunch) -> None:
        if live.tunable.name == task.kernel and live.launch.key == task.point:
            raise _SeenEnough(live)

    try:
        site.call(task.case, workload, case, notice)
    except _SeenEnough as seen:
        return seen.live
    raise TuningError(
        f"workload case {task.case} no longer makes a launch of {task.kernel} that it made before",
        hint="inputs and the public function must do the same in every process",
    )
