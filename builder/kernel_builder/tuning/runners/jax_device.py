"""The core that measures JAX kernels, on a GPU or TPU of this machine.

Launches are found by tracing (see `traced`) and run alone, each on arrays of its shapes: normal
random floats, zeros of every other kind. The author's default is compared with the workload's
reference through the public function; every other configuration with what the default computes.

Several such cores may share a device: each compiles for itself, which takes most of the time and is
done one thing at a time in a process (by Python while it traces, by Pallas's backend for Hopper),
and they take turns with the device.
"""

from __future__ import annotations

import importlib.metadata
import logging
import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from filelock import FileLock

from kernel_builder.tuning.collect import OpenSite
from kernel_builder.tuning.compare import difference
from kernel_builder.tuning.compare_jax import Agreement
from kernel_builder.tuning.matrix import config_key
from kernel_builder.tuning.runner import Found, Outcome, Station, Task
from kernel_builder.tuning.runners.core import Marks
from kernel_builder.tuning.runners.facts import failure_of
from kernel_builder.tuning.site import Site
from kernel_builder.tuning.timing import Timed, interleaved
from kernel_builder.tuning.timing_jax import Chain, JaxTimer
from kernel_builder.tuning.traced import Program, TracedSite, import_jax
from kernelhub.dispatch.capturing import LiveLaunch
from kernelhub.errors import TuningError
from kernelhub.formats.tree import Config, DeviceFacts
from kernelhub.target import detect

_log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class _Bench:
    """The point that is measured, with arrays, and what is known of its configurations."""

    task: Task
    program: Program
    arrays: tuple[Any, ...]
    expected: Any = None
    agreement: Agreement | None = None  # with `expected`
    base: str = ""  # key of the configuration that gave `expected`
    chains: dict[str, Chain] = field(default_factory=dict)
    timed: dict[str, Timed] = field(default_factory=dict)


class JaxDeviceCore:
    """One accelerator that JAX sees.

    Args:
        site: where the code is, see `site.Site`.
        index: ordinal of the device among those that JAX sees; None: launches can be listed only.
        l2: "warm".
        threads: that compile.
        device: facts that the device must have; None: whatever is there.
        turn: a lock file that is held while the device is used; None: nobody else uses it.
    """

    def __init__(
        self,
        *,
        site: Mapping[str, Any],
        index: int | None,
        l2: str = "warm",
        threads: int = 1,
        device: Mapping[str, Any] | None = None,
        turn: str | None = None,
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
        self._lock = nullcontext() if turn is None else FileLock(turn)
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
        with self._lock:
            for config in configs:
                key = config_key(config)
                if key not in bench.timed:
                    marks.begin(config)
                    bench.timed[key] = self._timer.capture(bench.chains[key], bench.arrays)
                    marks.end(config)

            def tick() -> None:
                for config in configs:
                    marks.begin(config)

            tick()
            timed = [bench.timed[config_key(c)] for c in configs]
            samples = interleaved(
                lambda index: self._timer.sample(timed[index]),
                len(timed),
                rounds,
                tick=tick,
                seed=rounds,
            )
        for config, of_config in zip(configs, samples, strict=True):
            yield Outcome(config=config, samples=tuple(of_config))

    def _check(self, bench: _Bench, configs: Sequence[Config], marks: Marks) -> Iterator[Outcome]:
        futures: dict[Future[Any], Config] = {}
        for config in configs:
            futures[self._pool.submit(self._compile, bench, config, marks)] = config
        for future in as_completed(futures):
            config = futures[future]
            try:
                bench.chains[config_key(config)] = future.result()
            except TuningError:  # the timer is at fault
                raise
            except Exception as error:  # noqa: BLE001 - whatever a compiler raises is its verdict
                failure = failure_of(config, error, "compile_error")
                yield replace(failure, pruned=bench.program.live.tunable.is_unfit(error))
                continue
            marks.begin(config)
            yield self._verify(bench, config)

    def _compile(self, bench: _Bench, config: Config, marks: Marks) -> Chain:
        marks.begin(config)
        try:
            self._compiled += 1
            return self._timer.chain(bench.program.function(config), bench.arrays)
        finally:
            marks.end(config)

    def _verify(self, bench: _Bench, config: Config) -> Outcome:
        workload, _ = self._open.workloads.find(bench.task.case)
        try:
            with self._lock:
                result = bench.chains[config_key(config)](*bench.arrays)
                self._jax.block_until_ready(result)
                wrong = (
                    bench.agreement.difference(result, bench.expected, workload.tolerance)
                    if bench.agreement
                    else None
                )
            if bench.agreement is None:
                wrong = self._against_reference(bench, config)
        except Exception as error:  # noqa: BLE001 - a candidate may fail in any way; it is recorded
            return failure_of(config, error, "fault")
        if wrong is not None:
            return Outcome(config=config, reason="wrong_result", detail=wrong)
        if bench.agreement is None:
            bench.base, bench.expected = config_key(config), result
            bench.agreement = Agreement(self._jax, result)
        return Outcome(config=config)

    def _against_reference(self, bench: _Bench, config: Config) -> str | None:
        """What the public function with this configuration returns, against the reference."""
        workload, case = self._open.workloads.find(bench.task.case)
        if workload.reference is None:
            return None
        name = bench.task.case

        def choose(live: LiveLaunch) -> Config:
            return config if live.tunable.name == bench.task.kernel else live.default

        def mine(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            return self._open.call(name, workload, case, choose, (args, kwargs))[0]

        def theirs(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            return self._open.reference(workload, case, (args, kwargs))

        self._jax.clear_caches()  # what it was traced with before would run
        with self._jax.default_device(self._device):
            given = workload.arguments(case, self._open.device)
            programs = [self._program(function, given) for function in (mine, theirs)]
            with self._lock:
                result, expected = (program() for program in programs)
                self._jax.block_until_ready((result, expected))
        return difference(result, expected, workload.tolerance)

    def _program(self, function: Callable[..., Any], given: Any) -> Callable[[], Any]:
        """A call, compiled before it is made; as it is where it cannot be traced as a whole."""
        jax = self._jax
        leaves, structure = jax.tree.flatten(given)
        places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, jax.Array)]
        arrays = [leaves[i] for i in places]

        def of_arrays(*arrays: Any) -> Any:
            filled = list(leaves)
            for place, array in zip(places, arrays, strict=True):
                filled[place] = array
            return function(*jax.tree.unflatten(structure, filled))

        try:
            return partial(jax.jit(of_arrays).lower(*arrays).compile(), *arrays)
        except (TypeError, TuningError) as error:
            _log.debug("%s runs as it is: %s", self._open.device, error)
            return partial(of_arrays, *arrays)

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
