"""The measuring half of `tune`: collect launches, open logs, run the engine over the runners."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from kernel_builder.tuning.engine import Engine
from kernel_builder.tuning.log import Context, Measurements
from kernel_builder.tuning.log_writer import Writer
from kernel_builder.tuning.matrix import Matrix, Point
from kernel_builder.tuning.plan import Assignment, MeasureOptions, Progress
from kernel_builder.tuning.runner import Found, Runner, Station, Task
from kernel_builder.tuning.site import measurement_file
from kernelhub.errors import TuningError
from kernelhub.reporter import SILENT, Reporter

UNSTABLE = 0.05
"""Relative error of the best time on a point above which it counts as not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureRequest:
    """What to measure.

    Attributes:
        kernels: dotted names; empty means every tunable that the workloads launch.
        fresh: measure again instead of going on from what is known.
        allow_unstable: keep results whose error is too large, instead of refusing them.
        options: of the engine.
    """

    kernels: tuple[str, ...] = ()
    fresh: bool = False
    allow_unstable: bool = False
    options: MeasureOptions = field(default_factory=MeasureOptions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One kernel after measuring.

    Attributes:
        path: its measurement file.
        context: what was measured, on what, and how: `policy["method"]` names the timer.
        foreign: results in the file that belong to another context.
        noise: relative error of the best time on each point, by the point's case; points
            on which nothing works are left out.
    """

    path: Path
    context: Context
    foreign: int
    noise: Mapping[str, float]


def measure(
    runners: Sequence[Runner],
    folder: Path,
    request: MeasureRequest,
    reporter: Reporter = SILENT,
    *,
    started: float | None = None,
) -> tuple[list[Measured], Progress]:
    """Measure every kernel that the workloads launch, into `folder`.

    Args:
        started: when the run began by `time.monotonic`, which its budget counts from; None: now.

    Raises:
        TuningError: a workload is at fault, a kernel is not known, another process writes the same
            file, or results are not stable; what was measured is kept.
        StoreError: the disk refuses.
    """
    started = time.monotonic() if started is None else started
    reporter.stage("start")
    station = runners[0].station
    _check_equal(station, runners)
    reporter.stage("collect")
    ahead = _Ahead(runners[0], folder, request)
    found = choose_kernels(runners[0].collect(ahead.notice), request.kernels)
    reporter.done(f"{len(found)} launches")
    with contextlib.ExitStack() as stack:
        assignments = [
            _assignment(stack, name, group, station, folder, request)
            for name, group in _by_kernel(found).items()
        ]
        engine = Engine(assignments, runners, request.options, reporter, started=started)
        progress = engine.run()
        results = [
            Measured(
                path=measurement_file(folder, a.context.kernel, station.device.slug),
                context=a.context,
                foreign=a.writer.measurements.foreign(a.context),
                noise=noise_of(a.writer.measurements.matrix(a.context).only(a.points)),
            )
            for a in assignments
        ]
    reporter.event("effort", **{name: round(value, 3) for name, value in progress.effort.items()})
    for result in results:
        if result.foreign:
            reporter.say(
                f"{result.path.name}: {result.foreign} results of other hardware, tools, policy or "
                "kernel source were left aside"
            )
        reporter.event(
            "measured",
            kernel=result.context.kernel,
            device=result.context.device.name,
            policy=dict(result.context.policy),
            points=len(result.noise),
            largest_error=round(max(result.noise.values(), default=0.0), 5),
        )
    if not request.allow_unstable:
        refuse_unstable({result.context.kernel: result.noise for result in results})
    return results, progress


class _Ahead:
    """Has launches compiled as they are found, while further ones are being looked for.

    Only what is sure to be wanted: all configurations of a small space that nothing is known of.
    """

    def __init__(self, runner: Runner, folder: Path, request: MeasureRequest) -> None:
        self._runner = runner
        self._folder = folder
        self._request = request
        self._logs: dict[str, Measurements] = {}

    def notice(self, found: Found) -> None:
        kernels, limits = self._request.kernels, self._request.options.limits
        if (kernels and found.kernel not in kernels) or len(found.candidates) > limits.enumerate:
            return
        if not self._known(found) or self._request.fresh:
            task = Task(
                kernel=found.kernel, case=found.case, point=found.point, features=found.features
            )
            self._runner.prepare(task, found.candidates)

    def _known(self, found: Found) -> bool:
        station = self._runner.station
        if found.kernel not in self._logs:
            path = measurement_file(self._folder, found.kernel, station.device.slug)
            self._logs[found.kernel] = Measurements.read(path)
        log = self._logs[found.kernel]
        context = _series(log, _context(found, station), fresh=False)
        return bool(log.known(context.id, found.point))


def noise_of(matrix: Matrix) -> dict[str, float]:
    """Relative error of the best time on each point, by the point's case."""
    best = {point.case: matrix.best_cell(point) for point in matrix.points}
    return {case: cell.error / cell.ms for case, cell in best.items() if cell and cell.ms}


def choose_kernels(found: Sequence[Found], wanted: Sequence[str]) -> list[Found]:
    """The launches of the wanted kernels.

    Raises:
        TuningError: a wanted kernel is not launched; names those that are.
    """
    launched = sorted({f.kernel for f in found})
    unknown = sorted(set(wanted) - set(launched))
    if unknown:
        raise TuningError(
            f"no workload launches a tunable called {', '.join(unknown)}",
            hint=f"the workloads launch {', '.join(launched) or 'none'}",
        )
    return [f for f in found if not wanted or f.kernel in wanted]


def refuse_unstable(noise: Mapping[str, Mapping[str, float]]) -> None:
    """Refuse times that are too noisy to compare.

    Args:
        noise: by kernel, see `noise_of`.

    Raises:
        TuningError: some points' best times have relative errors above `UNSTABLE`; names them.
    """
    noisy = [
        f"{kernel} {case} (±{error:.0%})"
        for kernel, errors in noise.items()
        for case, error in errors.items()
        if error > UNSTABLE
    ]
    if noisy:
        raise TuningError(
            f"times are not stable on {len(noisy)} points: {', '.join(noisy[:5])}",
            hint="stop what else uses the GPU and measure again with --fresh, or keep them with "
            "--allow-unstable",
        )


def _check_equal(station: Station, runners: Sequence[Runner]) -> None:
    others = [r.station for r in runners[1:] if r.station != station]
    if others:
        raise TuningError(
            f"the devices differ: {station.device.name} and {others[0].device.name}",
            hint="tune on one model at a time: --gpus 1, or hide the others from this process",
        )


def _by_kernel(found: Sequence[Found]) -> dict[str, list[Found]]:
    groups: dict[str, list[Found]] = {}
    for item in found:
        groups.setdefault(item.kernel, []).append(item)
    return dict(sorted(groups.items()))


def _assignment(
    stack: contextlib.ExitStack,
    name: str,
    group: Sequence[Found],
    station: Station,
    folder: Path,
    request: MeasureRequest,
) -> Assignment:
    writer = Writer(measurement_file(folder, name, station.device.slug))
    stack.enter_context(writer.open())
    context = _context(group[0], station)
    points = tuple(
        Point(id=f.point, features=f.features, weight=f.weight, held_out=f.held_out, case=f.case)
        for f in group
    )
    return Assignment(
        context=_series(writer.measurements, context, fresh=request.fresh),
        writer=writer,
        points=points,
        candidates={f.point: f.candidates for f in group},
    )


def _context(found: Found, station: Station) -> Context:
    return Context(
        kernel=found.kernel,
        source=found.source,
        device=station.device,
        tools=station.tools,
        policy=station.policy,
    )


def _series(known: Measurements, context: Context, *, fresh: bool) -> Context:
    """The context to write to: the newest series of measurements of this kind, or the next one.

    `--fresh` starts a new series instead of deleting the old one.
    """
    number = 1
    while _numbered(context, number + 1).id in known.contexts:
        number += 1
    if fresh and known.count(_numbered(context, number)):
        number += 1
    return _numbered(context, number)


def _numbered(context: Context, number: int) -> Context:
    if number == 1:
        return context
    return replace(context, policy={**context.policy, "series": number})
