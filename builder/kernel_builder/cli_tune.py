"""`kernel-builder tune`."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from kernel_builder.cli_progress import reporting
from kernel_builder.cli_tuned import facts, text
from kernel_builder.tuning import machine
from kernel_builder.tuning.account import account
from kernel_builder.tuning.fit import FitOptions
from kernel_builder.tuning.goals import Wanted
from kernel_builder.tuning.measure import Measured, MeasureRequest, choose_kernels, measure
from kernel_builder.tuning.runner import Found
from kernel_builder.tuning.stationed import Stationed
from kernel_builder.tuning.tune import Place, build, overlay_place, project_place
from kernelhub.cli import EXIT_FAULTS
from kernelhub.formats.tree_render import config_text
from kernelhub.reporter import Reporter

_EXISTING = click.Path(path_type=Path, exists=True, dir_okay=False)


class JsonReporter(Reporter):
    """One JSON object a line on stdout, for CI."""

    def stage(self, name: str, total: int | None = None, unit: str = "") -> None:
        self.event("stage", name=name, total=total, unit=unit)

    def advance(self, amount: int = 1, note: str = "") -> None:
        self.event("advance", amount=amount, note=note)

    def done(self, note: str = "") -> None:
        self.event("done", note=note)

    def say(self, text: str) -> None:
        self.event("say", text=text)

    def event(self, kind: str, **facts: object) -> None:
        click.echo(json.dumps({"event": kind, **facts}))
        sys.stdout.flush()


@click.command("tune")
@click.argument("path", default=".")
@click.option(
    "--phase",
    type=click.Choice(["collect", "measure", "build", "all"]),
    default="all",
    show_default=True,
    help="collect: list the launches. measure: time configurations. build: fit trees, no GPU.",
)
@click.option(
    "--interpret",
    is_flag=True,
    help="With --phase collect: without a GPU, run the cases on the CPU. For small shapes only.",
)
@click.option("--kernel", "kernels", multiple=True, help="Only this tunable; may be repeated.")
@click.option(
    "--resume/--fresh",
    default=True,
    show_default=True,
    help="Go on from what is measured, or measure all of it again.",
)
@click.option("--from-record", "record", type=_EXISTING, help="Tune for recorded launches.")
@click.option("--workloads", type=_EXISTING, help="A workload file in place of the project's.")
@click.option(
    "--max-slowdown",
    type=click.FloatRange(min=1.0),
    help="Goal: no measured point is slower than the best known by more than this factor, and "
    "neither is the geometric mean in leave-one-shape-out. "
    f"[default: that of the tree that is there, else {FitOptions().max_slowdown}]",
)
@click.option(
    "--max-configs",
    type=click.IntRange(1, 64),
    help="Most configurations in a tree. "
    f"[default: that of the tree that is there, else {FitOptions().max_configs}]",
)
@click.option("--budget", type=click.FloatRange(min=0), help="Seconds until measuring ends.")
@click.option("--l2", type=click.Choice(["warm", "cold"]), help="L2 cache policy. [default: warm]")
@click.option("--gpus", type=click.IntRange(min=1), help="How many GPUs to use. [default: all]")
@click.option("--device", help="With --phase build: only this device, such as nvidia-h200.")
@click.option("--chip", help="A TPU, such as v5e, that need not be here; see --runner.")
@click.option(
    "--runner",
    "runner",
    type=click.Choice(["auto", "device", "compiler"]),
    default="auto",
    show_default=True,
    help="device: time on the device. compiler: with --chip, ask its compiler and model the time. "
    "auto: with --chip the compiler, unless a TPU is plugged in here.",
)
@click.option(
    "--finalists",
    type=click.IntRange(1, 64),
    default=2,
    show_default=True,
    help="With a compiler: configurations of each strategy that are compiled.",
)
@click.option("--allow-unstable", is_flag=True, help="Measure on a busy GPU; keep noisy results.")
@click.option("--allow-misses", is_flag=True, help="Write trees that miss the goal, and say so.")
@click.option("--overlay", is_flag=True, help="PATH is org/kernel==N: write your own overlay.")
@click.option(
    "--trust-remote-code", is_flag=True, help="With --overlay: run this publisher's code."
)
@click.option("--framework", type=click.Choice(["torch", "jax"]), help="Which package to tune.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def command(
    path: str,
    phase: str,
    interpret: bool,
    kernels: tuple[str, ...],
    resume: bool,
    record: Path | None,
    workloads: Path | None,
    max_slowdown: float | None,
    max_configs: int | None,
    budget: float | None,
    l2: str | None,
    gpus: int | None,
    device: str | None,
    chip: str | None,
    runner: str,
    finalists: int,
    allow_unstable: bool,
    allow_misses: bool,
    overlay: bool,
    trust_remote_code: bool,
    framework: str | None,
    as_json: bool,
) -> int:
    """Measure the kernels of the project in PATH and build their decision trees.

    Results are kept in tuning/measurements as they arrive: a run that was stopped goes on where it
    was. Exit code 3: a tree misses its goal, and not only as its evidence told before; it is not
    written unless --allow-misses is given.
    """
    if overlay:
        place = overlay_place(path, workloads=workloads, record=record, trust=trust_remote_code)
    else:
        place = project_place(Path(path), framework, workloads=workloads, record=record, chip=chip)
    station = Stationed.of(chip, runner, finalists)
    started = time.monotonic()
    sources = None
    with _reporting(as_json) as reporter:
        if phase == "collect":
            _print_launches(_collect(place, kernels, interpret), as_json)
            return 0
        if phase in ("measure", "all"):
            request = MeasureRequest(
                kernels=kernels,
                fresh=not resume,
                allow_unstable=allow_unstable,
                options=station.options(budget),
            )
            measured = _measure(place, request, station, gpus, l2 or "warm", reporter, started)
            sources = {item.context.kernel: item.context.source for item in measured}
            kernels = tuple(item.context.kernel for item in measured)
            device = measured[0].context.device.slug
            if phase == "measure":
                return 0
        built = build(
            place,
            Wanted(max_slowdown=max_slowdown, max_configs=max_configs),
            kernels=kernels,
            device=device,
            sources=sources or (None if overlay else _sources(place)),
            l2=l2,
            allow_misses=allow_misses,
            reporter=reporter,
        )
    for item in built:
        click.echo(json.dumps(facts(item)) if as_json else text(item))
    missed = any(item.report.new_misses for item in built)
    return EXIT_FAULTS if missed and not allow_misses else 0


def _measure(
    place: Place,
    request: MeasureRequest,
    station: Stationed,
    gpus: int | None,
    l2: str,
    reporter: Reporter,
    started: float,
) -> list[Measured]:
    if not request.allow_unstable and not station.modelled:
        machine.refuse_busy_gpus()
    with station.runners(place.site, gpus, l2) as runners:
        measured, progress = measure(
            runners, place.measurements, request, reporter, started=started
        )
    reporter.say(account(progress, measured))
    return measured


@contextmanager
def _reporting(as_json: bool) -> Iterator[Reporter]:
    if as_json:
        yield JsonReporter()
    else:
        with reporting() as reporter:
            yield reporter


def _collect(place: Place, kernels: tuple[str, ...], interpret: bool) -> list[Found]:
    collecting = machine.collecting_runner(place.site, interpret=interpret)
    with machine.running([collecting]) as (runner,):
        return choose_kernels(runner.collect(), kernels)


def _sources(place: Place) -> dict[str, str]:
    with machine.running([machine.importing_runner(place.site)]) as (runner,):
        return runner.sources()


def _print_launches(found: list[Found], as_json: bool) -> None:
    for item in found:
        if as_json:
            row = {
                "event": "launch",
                "kernel": item.kernel,
                "case": item.case,
                "weight": item.weight,
                "held_out": item.held_out,
                "features": dict(item.features),
                "candidates": len(item.candidates),
            }
            click.echo(json.dumps(row))
        else:
            held = "  held out" if item.held_out else ""
            click.echo(
                f"{item.kernel}  {item.case}  {len(item.candidates)} candidates, "
                f"default {config_text(item.candidates[0])}{held}"
            )
