"""The core that measures on a GPU of this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from typing import Any

from kernel_builder.tuning.collect import OpenSite
from kernel_builder.tuning.compare import difference, snapshot
from kernel_builder.tuning.matrix import config_key
from kernel_builder.tuning.runner import Found, Outcome, Station, Task
from kernel_builder.tuning.runners.ahead import Ahead, hash_compiler
from kernel_builder.tuning.runners.bench import Bench, find_live
from kernel_builder.tuning.runners.core import Marks, Poisoned
from kernel_builder.tuning.runners.facts import count_compilations, failure_of, tools_of
from kernel_builder.tuning.runners.gpu import no_gpu, open_device, torch_with_gpu
from kernel_builder.tuning.site import Site
from kernel_builder.tuning.timing import GraphTimer, interleaved
from kernelhub import interpreter
from kernelhub.dispatch.capturing import LiveLaunch
from kernelhub.dispatch.device import torch_device
from kernelhub.errors import TuningError
from kernelhub.formats.tree import Config

_BENCHES = 2  # points whose arguments are kept: the last and the one that is measured


class DeviceCore:
    """One GPU of this process.

    Args:
        site: where the code is, see `site.Site`.
        index: ordinal of the GPU among those that this process sees; None for the CPU, where
            launches can be collected and checked but not timed.
        l2: "warm" or "cold".
        threads: that compile.
        interpret: run Triton kernels in Triton's interpreter; without it, on a machine with no
            GPU, they can be imported and not launched.
    """

    def __init__(
        self,
        *,
        site: Mapping[str, Any],
        index: int | None,
        l2: str = "warm",
        threads: int = 1,
        interpret: bool = False,
    ) -> None:
        self._torch: Any = None
        self._index = index
        self._l2 = l2
        ahead = Ahead()
        if interpret:
            interpreter.enable()
        if index is not None:
            hash_compiler(ahead)
            self._torch = torch_with_gpu(index)
            open_device(ahead, self._torch, index)
        self._compilations = count_compilations()
        self._site = OpenSite(Site(**site), "cpu" if index is None else f"cuda:{index}")
        ahead.join()
        self._pool = ThreadPoolExecutor(threads, initializer=self._enter_thread)
        self._timer: GraphTimer | None = None
        self._benches: dict[tuple[str, str], Bench] = {}
        self._configs: dict[str, Config] = {}  # one object for each: adapters remember by identity

    def station(self) -> Station:
        facts = None if self._index is None else torch_device(self._index)
        if facts is None:
            raise no_gpu()
        policy = {"method": GraphTimer.method, "l2": self._l2}
        return Station(device=facts, tools=tools_of(self._torch), policy=policy)

    def collect(self, notice: Callable[[Found], None]) -> list[Found]:
        return self._site.collect(notice)

    def sources(self) -> dict[str, str]:
        return {name: found.source_hash() for name, found in self._site.tunables.items()}

    def counts(self) -> dict[str, int]:
        return dict(self._compilations)

    def check(
        self,
        task: Task,
        configs: Sequence[Config],
        base: Config | None,
        marks: Marks,
        *,
        serial: bool,
    ) -> Iterator[Outcome]:
        bench, configs = self._bench(task), self._known(configs)
        if base is not None and not bench.base and base not in configs:
            # Another process has checked it; here its result is needed to compare with.
            yield self._verify(bench, base)
        base = bench.live.default if base is None else base
        for batch in [[c] for c in configs] if serial else [list(configs)]:
            futures = {self._compile(bench, config, marks): config for config in batch}
            ready = []
            for future in as_completed(futures):
                failure = future.result()
                if failure is None:
                    ready.append(futures[future])
                else:
                    yield failure
            for config in _base_first(ready, base):
                marks.begin(config)
                yield self._verify(bench, config)

    def measure(
        self, task: Task, configs: Sequence[Config], rounds: int, marks: Marks
    ) -> Iterator[Outcome]:
        if self._timer is None:
            self._timer = GraphTimer(self._torch, self._l2)
        bench, configs = self._bench(task), self._known(configs)
        ready: list[Config] = []
        for config in configs:
            marks.begin(config)
            outcome = self._capture(bench, config)
            if outcome is not None:
                yield outcome
                continue
            marks.end(config)
            ready.append(config)

        failed: dict[int, Outcome] = {}

        def tick() -> None:
            self._return_memory()
            for config in ready:
                marks.begin(config)

        def sample(index: int) -> float | None:
            found = self._sample(bench, ready[index])
            if isinstance(found, Outcome):
                failed[index] = found
                return None
            return found

        tick()
        samples = interleaved(sample, len(ready), rounds, tick=tick, seed=rounds)
        for index, config in enumerate(ready):
            # One that fails late is no candidate, however good its samples were until then.
            yield failed.get(index) or Outcome(config=config, samples=tuple(samples[index]))

    def _known(self, configs: Sequence[Config]) -> list[Config]:
        return [self._configs.setdefault(config_key(config), config) for config in configs]

    def _bench(self, task: Task) -> Bench:
        key = (task.kernel, task.point)
        bench = self._benches.pop(key, None)
        if bench is None:
            while len(self._benches) >= _BENCHES:  # the oldest; its graphs and tensors go with it
                self._benches.pop(next(iter(self._benches)))
            self._return_memory()
            bench = Bench(task=task, live=find_live(self._site, task))
            self._refuse_other_frameworks(bench)
        self._benches[key] = bench  # the most recently used is the last
        return bench

    def _refuse_other_frameworks(self, bench: Bench) -> None:
        """A CUDA graph of torch holds nothing of what JAX launches: its time would mean nothing."""
        if self._index is not None and any(
            hasattr(value, "aval") for value in bench.live.call.arguments.values()
        ):
            raise TuningError(
                f"{bench.task.kernel} takes JAX arrays, which this runner cannot time",
                hint="declare a default configuration; only torch's launches are measured so far",
            )

    def _compile(self, bench: Bench, config: Config, marks: Marks) -> Future[Outcome | None]:
        """Compile in a thread, once; mostly it is in the cache already (see `compilers`).

        The future's result is a failure or None.
        """
        key = config_key(config)
        if key not in bench.compiled:
            bench.compiled[key] = self._pool.submit(self._compiled, bench, config, marks)
        return bench.compiled[key]

    def _compiled(self, bench: Bench, config: Config, marks: Marks) -> Outcome | None:
        marks.begin(config)
        try:
            resources = bench.live.compile(config)
        except Exception as error:  # noqa: BLE001 - whatever a compiler raises is its verdict
            return failure_of(config, error, "compile_error")
        finally:
            marks.end(config)
        device = None if self._index is None else torch_device(self._index)
        if device is not None and not resources.fits(device):
            detail = f"{resources.shared_memory} bytes of shared memory, {device.shared_memory} fit"
            return Outcome(config=config, reason="out_of_resources", detail=detail)
        return None

    def _verify(self, bench: Bench, config: Config) -> Outcome:
        """Run the public function with this configuration and compare what it returns."""
        workload, case = self._site.workloads.find(bench.task.case)

        def choose(live: LiveLaunch) -> Config | None:
            return config if live.tunable.name == bench.task.kernel else None

        try:
            result = self._site.call(bench.task.case, workload, case, choose)
            self._synchronize()
        except Exception as error:  # noqa: BLE001 - a candidate may fail in any way; it is recorded
            return self._after(failure_of(config, error, "fault"))
        if not bench.base:
            if workload.reference is not None:
                wrong = difference(
                    result[0], self._site.reference(workload, case), workload.tolerance
                )
                if wrong is not None:
                    return Outcome(config=config, reason="wrong_result", detail=wrong)
            bench.base, bench.expected = config_key(config), snapshot(result)
            return Outcome(config=config)
        wrong = difference(list(result), bench.expected, workload.tolerance)
        if wrong is not None:
            return Outcome(config=config, reason="wrong_result", detail=wrong)
        return Outcome(config=config)

    def _sample(self, bench: Bench, config: Config) -> float | Outcome:
        """Milliseconds of one launch, of a graph of its own; or why there are none."""
        assert self._timer is not None  # noqa: S101 - made by `measure`
        timed = bench.timed.pop(config_key(config), None)
        try:
            return self._timer.sample(timed or self._timer.capture(lambda: bench.live.run(config)))
        except TuningError:  # the host is at fault
            raise
        except Exception as error:  # noqa: BLE001 - see `_verify`
            return self._after(failure_of(config, error, "fault"))

    def _capture(self, bench: Bench, config: Config) -> Outcome | None:
        key = config_key(config)
        if key in bench.timed:
            return None
        assert self._timer is not None  # noqa: S101 - made by `measure`
        try:
            # Restore once what the author declared; repeated launches then run as in use.
            bench.live.run(config, restore=True)
            self._synchronize()  # the timer has a stream of its own
            bench.timed[key] = self._timer.capture(lambda: bench.live.run(config))
            self._synchronize()
        except Exception as error:  # noqa: BLE001 - see `_verify`
            return self._after(failure_of(config, error, "fault"))
        return None

    def _after(self, outcome: Outcome) -> Outcome:
        """The outcome, if the device survived it."""
        try:
            self._synchronize()
        except Exception as error:
            raise Poisoned(
                Outcome(config=outcome.config, reason="fault", detail=str(error)[:500])
            ) from error
        return outcome

    def _return_memory(self) -> None:
        """Graphs keep pools of their own, which nothing else may fill when they are gone; and
        during a capture torch cannot return memory to the device."""
        if self._index is not None:
            self._torch.cuda.empty_cache()

    def _synchronize(self) -> None:
        if self._index is not None:
            self._torch.cuda.synchronize()

    def _enter_thread(self) -> None:
        if self._index is not None:
            self._torch.cuda.set_device(self._index)


def _base_first(configs: Sequence[Config], base: Config) -> list[Config]:
    """The base first: what it computes is what the others are compared with."""
    return sorted(configs, key=lambda c: c != base)
