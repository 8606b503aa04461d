"""Where a run measures: on the devices of this machine, or with a compiler for a TPU elsewhere."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kernel_builder.tuning import machine
from kernel_builder.tuning.plan import MeasureOptions
from kernel_builder.tuning.race import RaceRules
from kernel_builder.tuning.runners.process import ProcessRunner
from kernel_builder.tuning.site import Site
from kernel_builder.tuning.spread import usable_cores
from kernelhub.errors import InputError
from kernelhub.formats.tpu import CHIPS, TpuChip, chip_of_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Stationed:
    """The choice of a command line.

    Attributes:
        chip: the TPU that is tuned for; None: whatever device is here.
        modelled: whether its compiler is asked, and nothing is timed.
        finalists: configurations of each strategy that a compiler is asked about.
    """

    chip: TpuChip | None
    modelled: bool
    finalists: int = 2

    @classmethod
    def of(cls, chip: str | None, runner: str, finalists: int = 2) -> Stationed:
        """What `--chip` and `--runner` ("auto", "device", "compiler") ask for.

        Raises:
            InputError: there is no such chip, or a compiler is asked about none.
        """
        found = None if chip is None else chip_of_name(chip)
        if chip is not None and found is None:
            names = ", ".join(c.name for c in CHIPS)
            raise InputError(f"there is no TPU {chip!r}", hint=f"known are {names}")
        if found is None and runner == "compiler":
            raise InputError("--runner compiler needs --chip", hint="such as --chip v5e")
        absent = found is not None and not machine.has_tpu()
        modelled = runner == "compiler" or (runner == "auto" and absent)
        return cls(chip=found, modelled=modelled, finalists=finalists)

    def options(self, budget: float | None) -> MeasureOptions:
        """Limits of the run: a model has no noise, so one sample says all."""
        if not self.modelled:
            return MeasureOptions(budget=budget)
        return MeasureOptions(budget=budget, rules=RaceRules(stages=(1, 1)))

    @contextmanager
    def runners(self, site: Site, gpus: int | None, l2: str) -> Iterator[list[ProcessRunner]]:
        """The runners, for a block of code; see `machine`."""
        with (
            tempfile.TemporaryDirectory(prefix="kernelhub-tune-") as folder,
            machine.running(self._runners(site, gpus, l2, Path(folder))) as runners,
        ):
            yield runners

    def _runners(self, site: Site, gpus: int | None, l2: str, folder: Path) -> list[ProcessRunner]:
        if self.chip is not None and self.modelled:
            cores = max(1, usable_cores())
            return machine.compiler_runners(site, self.chip, folder, cores, self.finalists)
        if site.framework == "jax":
            facts = None if self.chip is None else self.chip.facts
            return machine.jax_runners(site, gpus, l2, folder, facts)
        return machine.device_runners(site, gpus, l2)
