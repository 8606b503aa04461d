"""The core that measures JAX kernels, on a GPU or TPU of this machine.

Launches are found by tracing (see `traced`) and run alone, each on arrays of its shapes: normal
random floats, zeros of every other kind. The author's default is compared with the workload's
reference through the public function; every other configuration with what the default computes.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from typing import Any

from kernel_builder.tuning.collect import OpenSite
from kernel_builder.tuning.compare import difference
from kernel_builder.tuning.matrix import config_key
from kernel_builder.tuning.runner import Found, Outcome, Station, Task
from kernel_builder.tuning.runners.core import Marks
from kernel_builder.tuning.runners.facts import failure_of
from kernel_builder.tuning.site import Site
from kernel_builder.tuning.timing import Timed, interleaved
from kernel_builder.tuning.timing_jax import JaxTimer
from kernel_builder.tuning.traced import Program, TracedSite, import_jax
from kernelhub.dispatch.capturing import LiveLaunch
from kernelhub.errors import TuningError
from kernelhub.formats.tree import Config, DeviceFacts
from kernelhub.target import detect


@dataclass(slots=True, kw_only=True)
class _Bench:
    """The point that is measured, with arrays, and what is known of its configurations."""

    task: Task
    program: Program
    arrays: tuple[Any, ...]
    expected: Any = None
    base: str = ""  # key of the configuration that gave `expected`
    loops: dict[str, Any] = field(default_factory=dict)
    timed: dict[str, Timed] = field(default_factory=dict)


class JaxDeviceCore:
    """One accelerator that JAX sees.

    Args:
        site: where the code is, see `site.Site`.
        index: ordinal of the device among those that JAX sees; None: launches can be listed only.
        l2: "warm".
        threads: that compile.
        device: facts that the device must have; None: whatever is there.
    """

    def __init__(
        self,
        *,
        site: Mapping[str, Any],
        index: int | None,
        l2: str = "warm",
        threads: int = 1,
        device: Mapping[str, Any] | None = None,
    ) -> None:
        if l2 != "warm":
            raise TuningError("JAX kernels are timed with a warm L2 cache only", hint="drop --l2")
        # A worker takes what it needs: others may share the device's memory.
        os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
        self._jax = import_jax()
        self._index = index
        self._device = None if index is None else _accelerator(self._jax, index)
        self._facts = None if index is None else _facts(device)
        platform_name = "cpu" if self._device is None else self._device.platform
        self._open = OpenSite(Site(**site), platform_name)
        self._traced = TracedSite(self._open)
        self._pool = ThreadPoolExecutor(threads)
        self._timer = JaxTimer(self._jax)
        self._bench_: _Bench | None = None
        self._compiled = 0

    def station(self) -> Station:
        if self._facts is None or self._device is None:
            raise no_accelerator()
        tools = {"jax": self._jax.__version__, "python": platform.python_version()}
        tools["jaxlib"] = importlib.metadata.version("jaxlib")
        tools["runtime"] = str(self._device.client.platform_version).partition("\n")[0][:60]
        policy = {"method": JaxTimer.method, "l2": "warm"}
        return Station(device=self._facts, tools=tools, policy=policy)

    def collect(self, notice: Callable[[Found], None]) -> list[Found]:
        return self._traced.collect(notice)

    def sources(self) -> dict[str, str]:
        return {name: found.source_hash() for name, found in self._open.tunables.items()}

    def counts(self) -> dict[str, int]:
        return {"compiled_here": self._compiled}

    def check(
        self,
        task: Task,
        configs: Sequence[Config],
        base: Config | None,
        marks: Marks,
        *,
        serial: bool,
    ) -> Iterator[Outcome]:
        bench = self._bench(task)
        if base is not None and not bench.base and base not in configs:
            yield from self._check(bench, [base], marks)
        first = bench.program.live.default if base is None else base
        for batch in [[c] for c in configs] if serial else [list(configs)]:
            # The base is right or wrong by the reference, the others by the base.
            leading = [c for c in batch if c == first and not bench.base]
            yield from self._check(bench, leading, marks)
            yield from self._check(bench, [c for c in batch if c not in leading], marks)

    def measure(
        self, task: Task, configs: Sequence[Config], rounds: int, marks: Marks
    ) -> Iterator[Outcome]:
        bench = self._bench(task)
        for config in configs:
            key = config_key(config)
            if key not in bench.timed:
                marks.begin(config)
                bench.timed[key] = self._timer.capture(bench.loops[key], bench.arrays)
                marks.end(config)

        def tick() -> None:
            for config in configs:
                marks.begin(config)

        tick()
        timed = [bench.timed[config_key(c)] for c in configs]
        samples = interleaved(self._timer, timed, rounds, tick=tick, seed=rounds)
        for config, of_config in zip(configs, samples, strict=True):
            yield Outcome(config=config, samples=tuple(of_config))

    def _check(self, bench: _Bench, configs: Sequence[Config], marks: Marks) -> Iterator[Outcome]:
        futures: dict[Future[Any], Config] = {}
        for config in configs:
            futures[self._pool.submit(self._compile, bench, config, marks)] = config
        for future in as_completed(futures):
            config = futures[future]
            try:
                bench.loops[config_key(config)] = future.result()
            except Exception as error:  # noqa: BLE001 - whatever a compiler raises is its verdict
                yield failure_of(config, error, "compile_error")
                continue
            marks.begin(config)
            yield self._verify(bench, config)

    def _compile(self, bench: _Bench, config: Config, marks: Marks) -> Any:
        marks.begin(config)
        try:
            self._compiled += 1
            return self._timer.loop(bench.program.function(config), bench.arrays)
        finally:
            marks.end(config)

    def _verify(self, bench: _Bench, config: Config) -> Outcome:
        workload, _ = self._open.workloads.find(bench.task.case)
        try:
            result = bench.loops[config_key(config)](*bench.arrays)
            self._jax.block_until_ready(result)
            wrong = (
                difference(result, bench.expected, workload.tolerance)
                if bench.base
                else self._against_reference(bench, config)
            )
        except Exception as error:  # noqa: BLE001 - a candidate may fail in any way; it is recorded
            return failure_of(config, error, "fault")
        if wrong is not None:
            return Outcome(config=config, reason="wrong_result", detail=wrong)
        if not bench.base:
            bench.base, bench.expected = config_key(config), result
        return Outcome(config=config)

    def _against_reference(self, bench: _Bench, config: Config) -> str | None:
        """What the public function with this configuration returns, against the reference."""
        workload, case = self._open.workloads.find(bench.task.case)
        if workload.reference is None:
            return None

        def choose(live: LiveLaunch) -> Config:
            return config if live.tunable.name == bench.task.kernel else live.default

        self._jax.clear_caches()  # what it was traced with before would run
        with self._jax.default_device(self._device):
            result, _ = self._open.call(bench.task.case, workload, case, choose)
            return difference(result, self._open.reference(workload, case), workload.tolerance)

    def _bench(self, task: Task) -> _Bench:
        bench = self._bench_
        if bench is None or bench.task != task:
            self._bench_ = None  # its arrays go before others come
            program = Program.of(self._traced.find(task.case, task.kernel, task.point))
            arrays = tuple(self._array(i, shape) for i, shape in enumerate(program.shapes))
            bench = self._bench_ = _Bench(task=task, program=program, arrays=arrays)
        return bench

    def _array(self, number: int, shape: Any) -> Any:
        jax = self._jax
        with jax.default_device(self._device):
            if not jax.numpy.issubdtype(shape.dtype, jax.numpy.floating):
                return jax.numpy.zeros(shape.shape, shape.dtype)
            return jax.random.normal(jax.random.key(number), shape.shape).astype(shape.dtype)


def _accelerator(jax: Any, index: int) -> Any:
    devices = [d for d in jax.local_devices() if d.platform != "cpu"]
    if index >= len(devices):
        raise no_accelerator()
    return devices[index]


def _facts(expected: Mapping[str, Any] | None) -> DeviceFacts:
    facts = detect(("jax",)).device
    if facts is None:
        raise no_accelerator()
    if expected is not None and facts != DeviceFacts(**expected):
        raise TuningError(f"the device here is {facts.name}, not {DeviceFacts(**expected).name}")
    return facts


def no_accelerator() -> TuningError:
    """There is nothing to measure on."""
    return TuningError(
        "measuring JAX kernels needs a GPU or TPU that JAX can see, and there is none",
        hint="run this on a machine with one; for a TPU, --chip asks its compiler instead",
    )
