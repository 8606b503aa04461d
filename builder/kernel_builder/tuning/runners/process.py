"""A runner in a process of its own, which may crash or hang without harm and is then replaced."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import asdict, dataclass
from typing import Any

from kernel_builder.tuning.matrix import config_key
from kernel_builder.tuning.runner import Found, Outcome, Station, Task
from kernel_builder.tuning.runners.compilers import Compilers
from kernel_builder.tuning.runners.exchange import Lost, Worker
from kernelhub.errors import TuningError
from kernelhub.formats.tree import Config, DeviceFacts

_log = logging.getLogger(__name__)
_HANGING = 300.0  # seconds without a compilation that ends
_PATIENCE = 0.2  # seconds between looks whether somebody has interrupted


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Seconds without any answer after which a worker counts as hanging."""

    start: float = 180.0
    check: float = 120.0
    measure: float = 60.0


class ProcessRunner:
    """A `Runner` whose work is done by a worker process.

    Args:
        core: a name in `worker.CORES`.
        arguments: of that core; JSON.
        environment: variables of the process, None for this process's own.
        timeouts: when a worker counts as hanging.
        compilers: what compiles ahead, shared by the runners of one machine; closed with them.
    """

    def __init__(
        self,
        core: str,
        arguments: Mapping[str, Any],
        *,
        environment: Mapping[str, str] | None = None,
        timeouts: Timeouts | None = None,
        compilers: Compilers | None = None,
    ) -> None:
        self._timeouts = timeouts or Timeouts()
        self._compilers = compilers
        first = {"core": core, "arguments": dict(arguments)}
        self._worker = Worker(first, environment, self._timeouts.start)
        self._station: Station | None = None
        self._passed: set[tuple[int, str, str]] = set()  # number of the worker that checked it
        self._bases: dict[str, Config | None] = {}
        self._interrupted = threading.Event()
        self._effort: dict[str, float] = defaultdict(float)

    @property
    def restarts(self) -> int:
        """How often the worker had to be replaced."""
        return max(0, self._worker.started - 1)

    def start(self) -> None:
        """Start the process, if there is none, without waiting for it."""
        self._worker.start()

    @property
    def station(self) -> Station:
        if self._station is None:
            found: dict[str, Any] = {}
            try:
                for answer in self._ask({"do": "station"}, self._timeouts.start):
                    found.update(answer.get("station", {}))
            except Lost as lost:
                raise TuningError(f"the worker cannot see its device: {lost.detail}") from lost
            found["device"] = DeviceFacts(**found["device"])
            self._station = Station(**found)
        return self._station

    def collect(self, notice: Callable[[Found], None] = lambda _: None) -> list[Found]:
        found: list[Found] = []
        try:
            with self._spending("collect"):
                for answer in self._ask({"do": "collect"}, self._timeouts.start):
                    if "found" in answer:
                        found.append(Found(**answer["found"]))
                    elif "seen" in answer:
                        self._see(Found(**answer["seen"]), notice)
        except Lost as lost:
            raise TuningError(
                f"the process died while it ran the workloads: {lost.detail}",
                hint="run the public function on the cases' inputs to see why",
            ) from lost
        return found

    def _see(self, found: Found, notice: Callable[[Found], None]) -> None:
        if self._compilers is not None:
            self._compilers.learn(found)
        notice(found)

    def sources(self) -> dict[str, str]:
        """Hash of the source of every tunable of the package, by dotted name."""
        found: dict[str, str] = {}
        try:
            for answer in self._ask({"do": "sources"}, self._timeouts.start):
                found.update(answer.get("sources", {}))
        except Lost as lost:
            raise TuningError(f"the process died on importing: {lost.detail}") from lost
        return found

    def prepare(self, task: Task, configs: Sequence[Config]) -> None:
        if self._compilers is not None and self._station is not None:
            for config in reversed(configs):
                self._compilers.submit(task, config, self._station.device.arch)

    def check(
        self, task: Task, configs: Sequence[Config], base: Config | None = None
    ) -> Iterator[Outcome]:
        refused = self._refused(task, configs)
        yield from refused.values()
        if base is not None and config_key(base) in refused:
            base = None
        self._bases[task.point] = base
        left = [c for c in configs if config_key(c) not in refused]
        for outcome in self._each("check", task, left, {"base": base and dict(base)}):
            if outcome.reason is None:
                self._passed.add(self._check_key(task, outcome.config))
            yield outcome

    def _refused(self, task: Task, configs: Sequence[Config]) -> dict[str, Outcome]:
        """Wait until all are compiled; what the compiler has against some of them."""
        if self._compilers is None:
            return {}
        arch, submit = self.station.device.arch, self._compilers.submit
        jobs = [submit(task, config, arch) for config in reversed(configs)]
        with self._spending("compile"):
            self._wait(set(jobs))
        outcomes = [job.result() for job in reversed(jobs) if job.done()]
        return {config_key(o.config): o for o in outcomes if o is not None}

    def _wait(self, left: set[Future[Outcome | None]]) -> None:
        """Wait for all, until somebody interrupts, or long after the compilers' own limit."""
        last = time.monotonic()
        while left and not self._interrupted.is_set():
            done, left = wait(left, timeout=_PATIENCE)
            last = time.monotonic() if done else last
            if time.monotonic() - last > _HANGING and self._compilers is not None:
                _log.warning("compiling ahead hangs; the measuring process goes on without it")
                self._compilers.close()

    def measure(self, task: Task, configs: Sequence[Config], rounds: int) -> Iterator[Outcome]:
        # A worker that was replaced since has not checked these.
        again = [c for c in configs if self._check_key(task, c) not in self._passed]
        failed = set()
        for outcome in self.check(task, again, self._bases.get(task.point)) if again else ():
            if outcome.reason is not None:
                failed.add(config_key(outcome.config))
                yield outcome
        left = [c for c in configs if config_key(c) not in failed]
        yield from self._each("measure", task, left, {"rounds": rounds})

    def interrupt(self) -> None:
        self._interrupted.set()
        self._worker.interrupt()

    def effort(self) -> Mapping[str, float]:
        counts: dict[str, float] = {}
        if self._worker.alive and not self._interrupted.is_set():
            try:
                for answer in self._ask({"do": "counts"}, self._timeouts.measure):
                    counts |= answer.get("counts", {})
            except Lost as lost:  # then they are not known
                _log.debug("the worker was lost at the end: %s", lost.detail)
        return {**self._effort, "start": self._worker.waited, "restarts": self.restarts, **counts}

    def close(self) -> None:
        self._worker.close()
        if self._compilers is not None:
            self._compilers.close()

    def _each(
        self, do: str, task: Task, configs: Sequence[Config], more: Mapping[str, Any]
    ) -> Iterator[Outcome]:
        """One outcome for every configuration, whatever happens to the worker meanwhile."""
        pending = {config_key(c): c for c in configs}
        suspects: list[str] = []  # begun when a worker was lost with several under way
        while pending and not self._interrupted.is_set():
            serial = bool(suspects)
            batch = [pending[suspects.pop(0)]] if serial else list(pending.values())
            left = len(pending)
            try:
                request = {**more, "serial": serial}
                for outcome in self._timed(do, self._outcomes(do, task, batch, request)):
                    if pending.pop(config_key(outcome.config), None) is not None:
                        yield outcome
                silent = batch
                lost = Lost("fault", "the worker said nothing about it")
            except Lost as caught:
                if self._interrupted.is_set():
                    return
                lost = caught
                guilty = [key for key in lost.suspects if key in pending]
                # With several under way nobody is convicted unheard: each has a worker to itself.
                if len(guilty) > 1 and not serial:
                    suspects = guilty
                    continue
                if not guilty and more.get("base") is not None:
                    more = {**more, "base": None}  # then it was the base, which is none of these
                    continue
                silent = [pending[key] for key in guilty]
                if not guilty and not lost.explained and len(pending) == left:
                    silent = batch  # it dies of the task itself
            for config in silent:
                if pending.pop(config_key(config), None) is not None:
                    yield Outcome(config=config, reason=lost.reason, detail=lost.detail)
            suspects = [key for key in suspects if key in pending]

    def _outcomes(
        self, do: str, task: Task, configs: Sequence[Config], more: Mapping[str, Any]
    ) -> Iterator[Outcome]:
        request = {"do": do, "task": asdict(task), "configs": [dict(c) for c in configs], **more}
        limit = self._timeouts.check if do == "check" else self._timeouts.measure
        for answer in self._ask(request, limit):
            if "outcome" in answer:
                found = answer["outcome"]
                yield Outcome(**{**found, "samples": tuple(found["samples"])})

    def _ask(self, request: Mapping[str, Any], limit: float) -> Iterator[dict[str, Any]]:
        return self._worker.ask(request, limit)

    def _check_key(self, task: Task, config: Config) -> tuple[int, str, str]:
        return self._worker.started, task.point, config_key(config)

    @contextlib.contextmanager
    def _spending(self, what: str) -> Iterator[None]:
        start = time.monotonic()
        try:
            yield
        finally:
            self._effort[what] += time.monotonic() - start

    def _timed(self, what: str, outcomes: Iterator[Outcome]) -> Iterator[Outcome]:
        """The same outcomes; the waiting for them is put to the account of `what`."""
        while True:
            with self._spending(what):
                outcome = next(outcomes, None)
            if outcome is None:
                return
            yield outcome
