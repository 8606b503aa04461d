"""A runner in a process of its own, which may crash or hang without harm and is then replaced."""

from __future__ import annotations

import logging
import queue
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kernel_builder.tuning.matrix import config_key
from kernel_builder.tuning.runner import Found, Outcome, Station, Task
from kernel_builder.tuning.runners.child import Child, epitaph
from kernelhub.errors import TuningError
from kernelhub.formats.tree import Config, DeviceFacts

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Seconds without any answer after which a worker counts as hanging."""

    start: float = 180.0
    check: float = 120.0
    measure: float = 60.0


class _Lost(Exception):
    """The worker is gone or was given up.

    Attributes:
        reason: "fault" or "timeout".
        suspects: keys of the configurations that had begun and not ended.
        explained: whether the outcome that it sent last says whose fault it was.
        ahead: whether it may have been compiling for another task at that time.
    """

    def __init__(
        self,
        reason: str,
        detail: str,
        suspects: Sequence[str] = (),
        *,
        explained: bool = False,
        ahead: bool = False,
    ) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail
        self.suspects = list(suspects)
        self.explained = explained
        self.ahead = ahead


class ProcessRunner:
    """A `Runner` whose work is done by a worker process.

    Args:
        core: a name in `worker.CORES`.
        arguments: of that core; JSON.
        environment: variables of the process, None for this process's own.
        timeouts: when a worker counts as hanging.
    """

    def __init__(
        self,
        core: str,
        arguments: Mapping[str, Any],
        *,
        environment: Mapping[str, str] | None = None,
        timeouts: Timeouts | None = None,
    ) -> None:
        self._core = core
        self._arguments = dict(arguments)
        self._environment = environment
        self._timeouts = timeouts or Timeouts()
        self._worker: Child | None = None
        self._station: Station | None = None
        self._passed: set[tuple[str, str]] = set()  # checked by the worker that now lives
        self._bases: dict[str, Config | None] = {}
        self._ahead = False  # whether it may be compiling in the background
        self.restarts = -1  # the first start is none

    @property
    def station(self) -> Station:
        if self._station is None:
            found: dict[str, Any] = {}
            try:
                for answer in self._exchange({"do": "station"}, self._timeouts.start):
                    found.update(answer.get("station", {}))
            except _Lost as lost:
                raise TuningError(f"the worker cannot see its device: {lost.detail}") from lost
            found["device"] = DeviceFacts(**found["device"])
            self._station = Station(**found)
        return self._station

    def collect(self) -> list[Found]:
        try:
            answers = self._exchange({"do": "collect"}, self._timeouts.start)
            return [Found(**answer["found"]) for answer in answers]
        except _Lost as lost:
            raise TuningError(
                f"the process died while it ran the workloads: {lost.detail}",
                hint="run the public function on the cases' inputs to see why",
            ) from lost

    def sources(self) -> dict[str, str]:
        """Hash of the source of every tunable of the package, by dotted name."""
        found: dict[str, str] = {}
        try:
            for answer in self._exchange({"do": "sources"}, self._timeouts.start):
                found.update(answer.get("sources", {}))
        except _Lost as lost:
            raise TuningError(f"the process died on importing: {lost.detail}") from lost
        return found

    def prepare(self, task: Task, configs: Sequence[Config]) -> None:
        try:
            request = {"do": "prepare", "task": asdict(task), "configs": [dict(c) for c in configs]}
            for _ in self._exchange(request, self._timeouts.check):
                pass
            self._ahead = True
        except _Lost as lost:  # whoever did it will do it again when it is checked
            _log.debug("lost the worker while it compiled ahead: %s", lost.detail)

    def check(
        self, task: Task, configs: Sequence[Config], base: Config | None = None
    ) -> Iterator[Outcome]:
        self._bases[task.point] = base
        for outcome in self._each("check", task, configs, {"base": base and dict(base)}):
            if outcome.reason is None:
                self._passed.add((task.point, config_key(outcome.config)))
            yield outcome

    def measure(self, task: Task, configs: Sequence[Config], rounds: int) -> Iterator[Outcome]:
        # A worker that was replaced since has not checked these.
        again = [c for c in configs if (task.point, config_key(c)) not in self._passed]
        failed = set()
        for outcome in self.check(task, again, self._bases.get(task.point)) if again else ():
            if outcome.reason is not None:
                failed.add(config_key(outcome.config))
                yield outcome
        left = [c for c in configs if config_key(c) not in failed]
        yield from self._each("measure", task, left, {"rounds": rounds})

    def close(self) -> None:
        if self._worker is not None:
            self._worker.kill()
            self._worker = None

    def _each(
        self, do: str, task: Task, configs: Sequence[Config], more: Mapping[str, Any]
    ) -> Iterator[Outcome]:
        """One outcome for every configuration, whatever happens to the worker meanwhile."""
        pending = {config_key(c): c for c in configs}
        suspects: list[str] = []  # begun when a worker was lost with several under way
        while pending:
            serial = bool(suspects)
            batch = [pending[suspects.pop(0)]] if serial else list(pending.values())
            left = len(pending)
            try:
                for outcome in self._outcomes(do, task, batch, {**more, "serial": serial}):
                    if pending.pop(config_key(outcome.config), None) is not None:
                        yield outcome
                silent = batch
                lost = _Lost("fault", "the worker said nothing about it")
            except _Lost as caught:
                lost = caught
                guilty = [key for key in lost.suspects if key in pending]
                # With several under way, or others compiling behind them, nobody is convicted
                # unheard: each has a worker to itself.
                doubt = len(guilty) > 1 or (lost.reason == "fault" and bool(guilty) and lost.ahead)
                if doubt and not serial:
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
        for answer in self._exchange(request, limit):
            if "outcome" in answer:
                found = answer["outcome"]
                yield Outcome(**{**found, "samples": tuple(found["samples"])})

    def _exchange(self, request: Mapping[str, Any], limit: float) -> Iterator[dict[str, Any]]:
        """Send one request and yield its answers. The worker is started if there is none.

        Raises:
            _Lost: the worker died or hung; it is gone.
            TuningError: the worker says that it cannot go on.
        """
        begun: dict[str, None] = {}
        worker = self._worker or self._start()
        ended = False
        try:
            worker.send(request)
            while not ended:
                answer = worker.answer(limit)
                if answer is None:
                    raise self._lost(worker, begun)
                if "error" in answer:
                    raise TuningError(answer["error"], hint=answer["hint"])
                ended = "end" in answer
                if "begin" in answer:
                    begun[config_key(answer["begin"])] = None
                elif "ended" in answer:
                    begun.pop(config_key(answer["ended"]), None)
                elif not ended:
                    if "outcome" in answer:
                        begun.pop(config_key(answer["outcome"]["config"]), None)
                    yield answer
                if answer.get("last"):
                    raise _Lost("fault", "the device was left unusable", explained=True)
        except queue.Empty:
            raise _Lost("timeout", f"no answer for {limit:g} s", list(begun)) from None
        except BrokenPipeError:
            raise self._lost(worker, begun) from None
        finally:
            if not ended:  # whatever it is doing, its further answers must not reach anyone
                self._forget(worker)

    def _lost(self, worker: Child, begun: Iterable[str]) -> _Lost:
        return _Lost("fault", epitaph(worker), list(begun), ahead=self._ahead)

    def _start(self) -> Child:
        self._worker = Child(self._environment)
        self.restarts += 1
        first = {"core": self._core, "arguments": self._arguments}
        worker = self._worker
        try:
            for _ in self._exchange(first, self._timeouts.start):
                pass
        except _Lost as lost:
            raise TuningError(f"a measuring process could not start: {lost.detail}") from lost
        return worker

    def _forget(self, worker: Child) -> None:
        worker.kill()
        self._worker = None
        self._ahead = False
        self._passed.clear()
