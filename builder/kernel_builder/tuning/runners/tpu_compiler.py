"""The core that asks libtpu's compiler about a chip that is not there, and models the time.

`check` compiles: a configuration fits or does not, and the compiler's schedule is kept. `measure`
gives the modelled time of each. Nothing is run, so nothing is known of results.
"""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernel_builder.tuning.collect import OpenSite
from kernel_builder.tuning.matrix import config_key
from kernel_builder.tuning.runner import Found, Outcome, Station, Task
from kernel_builder.tuning.runners.core import Marks
from kernel_builder.tuning.runners.facts import failure_of
from kernel_builder.tuning.site import Site
from kernel_builder.tuning.tpu.compiling import ChipCompiler, OverVmem, prepare_process
from kernel_builder.tuning.tpu.finalists import finalists
from kernel_builder.tuning.tpu.model import Units, estimate
from kernel_builder.tuning.tpu.programs import Answer, Programs
from kernel_builder.tuning.tpu.schedule import Schedule
from kernel_builder.tuning.tpu.work import Work
from kernel_builder.tuning.traced import Program, TracedSite, import_jax
from kernelhub.dispatch.capturing import LiveLaunch
from kernelhub.errors import InputError, TuningError
from kernelhub.formats.evidence import MODELLED
from kernelhub.formats.tpu import CHIPS, chip_of_name
from kernelhub.formats.tree import Config


class TpuCompilerCore:
    """One kind of chip.

    Args:
        site: where the code is, see `site.Site`.
        chip: its name, "v5e".
        folder: where answers of the compiler are shared with other processes of the run.
        count: configurations of each group that are compiled.
    """

    def __init__(self, *, site: Mapping[str, Any], chip: str, folder: str, count: int = 2) -> None:
        found = chip_of_name(chip)
        if found is None:
            names = ", ".join(c.name for c in CHIPS)
            raise InputError(f"there is no TPU {chip!r}", hint=f"known are {names}")
        self._jax = import_jax()
        self._chip = found
        self._compiler = ChipCompiler(found, prepare_process())
        self._open = OpenSite(Site(**site), "cpu")
        self._traced = TracedSite(self._open, self._compiler.tracing)
        self._units = Units.of(found)
        self._programs = Programs(Path(folder), found.facts.shared_memory)
        self._count = count
        self._counts: Counter[str] = Counter()
        self._answers: dict[tuple[str, str], Answer] = {}

    def station(self) -> Station:
        import jax

        tools = {
            "jax": jax.__version__,
            "libtpu": self._compiler.version,
            "python": platform.python_version(),
        }
        return Station(device=self._chip.facts, tools=tools, policy={"method": MODELLED})

    def collect(self, notice: Callable[[Found], None]) -> list[Found]:
        found = self._traced.collect(notice)
        by_kernel: dict[str, list[Found]] = {}
        for item in found:
            by_kernel.setdefault(item.kernel, []).append(item)
        for group in by_kernel.values():
            self._keep_finalists(group)
        return found

    def sources(self) -> dict[str, str]:
        return {name: found.source_hash() for name, found in self._open.tunables.items()}

    def counts(self) -> dict[str, int]:
        return dict(self._counts)

    def check(
        self,
        task: Task,
        configs: Sequence[Config],
        base: Config | None,
        marks: Marks,
        *,
        serial: bool,
    ) -> Iterator[Outcome]:
        live = self._traced.find(task.case, task.kernel, task.point)
        for config in configs:
            marks.begin(config)
            answer = self._answer(task, live, config)
            if answer.fits:
                self._answers[task.point, config_key(config)] = answer
                yield Outcome(config=config)
                continue
            refusal = self._refusal(live, config)
            if refusal is None:
                yield Outcome(config=config, reason=answer.reason, detail=_over(answer))
            else:
                yield refusal

    def measure(
        self, task: Task, configs: Sequence[Config], rounds: int, marks: Marks
    ) -> Iterator[Outcome]:
        live = self._traced.find(task.case, task.kernel, task.point)
        for config in configs:
            marks.begin(config)
            answer = self._answers[task.point, config_key(config)]
            schedule = answer.schedule
            modelled = estimate(
                self._work(task.case, live, config),
                self._units,
                None if schedule is None else Schedule.from_json(schedule),
            )
            # A device with two cores shares the turns of a parallel grid out to both.
            ms = modelled.seconds * 1e3 / self._chip.facts.sm_count
            yield Outcome(config=config, samples=(ms,) * rounds)

    def _answer(self, task: Task, live: LiveLaunch, config: Config) -> Answer:
        work = self._work(task.case, live, config)
        program = [task.kernel, *(work.program or (task.point, config_key(config)))]

        def compile_() -> Answer:
            return self._compile(live, config, work)

        answer = self._programs.ask(program, work.vmem, compile_)
        self._counts["carried" if answer.carried else "answered"] += 1
        return answer

    def _refusal(self, live: LiveLaunch, config: Config) -> Outcome | None:
        """Why the launch itself refuses a configuration, before there is anything to compile, by an
        error for which dispatch takes the next in rank; None where it leaves that to the compiler,
        whose refusal comes after dispatch has chosen."""
        program = Program.of(live)
        try:
            with self._compiler.tracing():
                self._jax.eval_shape(program.function(config), *program.shapes)
        except Exception as error:  # noqa: BLE001 - the launch's own verdict, whatever it raises
            if not live.tunable.is_unfit(error):
                return None
            return replace(failure_of(config, error, "out_of_resources"), pruned=True)
        return None

    def _compile(self, live: LiveLaunch, config: Config, work: Work) -> Answer:
        program = Program.of(live)
        self._counts["compiled_here"] += 1
        try:
            found = self._compiler.compile(program.function(config), program.shapes)
        except OverVmem as over:
            return Answer(
                named=work.vmem, needed=over.needed, fits=False, limit=over.available,
                error="" if over.needed else str(over),
            )  # fmt: skip
        except Exception as error:  # noqa: BLE001 - whatever a compiler raises is its verdict
            failure = failure_of(config, error, "compile_error")
            return Answer(
                named=work.vmem, needed=None, fits=False, error=failure.detail,
                reason=failure.reason or "compile_error",
            )  # fmt: skip
        schedule = None if found.schedule is None else found.schedule.to_json()
        return Answer(
            named=work.vmem, needed=found.vmem, fits=True, schedule=schedule, seconds=found.seconds
        )

    def _work(self, case: str, live: LiveLaunch, config: Config) -> Work:
        workload, _ = self._open.workloads.find(case)
        describe = workload.work.get(live.tunable.name)
        if describe is None:  # at least its arrays have to be read
            shapes = Program.of(live).shapes
            return Work(hbm_bytes=float(sum(s.size * s.dtype.itemsize for s in shapes)))
        try:
            return describe(live.call.arguments, config)
        except Exception as error:
            raise TuningError(
                f"the work of {live.tunable.name} raised {type(error).__name__}: {error}",
                hint="it gets the launch's arguments by name and a configuration",
            ) from error

    def _keep_finalists(self, found: Sequence[Found]) -> None:
        """Of one kernel's launches: leave those configurations that are worth compiling."""
        configs = {config_key(c): c for item in found for c in item.candidates}
        works = []
        for item in found:
            live = self._traced.find(item.case, item.kernel, item.point)
            works.append({config_key(c): self._work(item.case, live, c) for c in item.candidates})
        if not any(work.program for of in works for work in of.values()):
            return
        limit = self._chip.facts.shared_memory
        chosen = finalists(works, configs, self._units, limit, self._count)
        for item in found:
            item.candidates = list(chosen)


def _over(answer: Answer) -> str:
    if answer.needed is None or answer.limit is None:
        return answer.error
    needed, limit = answer.needed / (1 << 20), answer.limit / (1 << 20)
    how = "; by the compiler's answer for another size" if answer.carried else ""
    return f"needs {needed:.2f} MiB of VMEM, {limit:.2f} MiB fit{how}"
