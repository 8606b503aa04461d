"""Measure all points of one or several kernels on one or several runners, durably.

The engine holds no state that the log does not hold: what to do next follows from what is known,
so a run that was killed goes on where it stopped and measures nothing twice.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial

from kernel_builder.tuning.fit.loss import make_rows
from kernel_builder.tuning.fit.subset import choose, useful_columns
from kernel_builder.tuning.matrix import Cell, Point, config_key
from kernel_builder.tuning.plan import Assignment, MeasureOptions, Progress
from kernel_builder.tuning.race import in_race, race
from kernel_builder.tuning.runner import Outcome, Runner, Task
from kernel_builder.tuning.search import Space, first_batch, nearest_points, next_batch
from kernelhub.formats.tree import Config
from kernelhub.reporter import SILENT, Reporter

_AHEAD = 4  # points behind the one that is measured whose configurations are compiled meanwhile
_GRACE = 2.0  # seconds after the budget for a stage to end by itself
_SHORTLIST_GOAL = 1.05  # slowdown above which the shortlist, like the fit, charges more


@dataclass(frozen=True, slots=True)
class _Job:
    assignment: Assignment
    point: Point
    only: tuple[Config, ...] | None = None  # None: race and search
    pruned: bool = False  # `only` holds what the author's pruning drops here


class Engine:
    """One run over some assignments. `run` is called once.

    Args:
        started: when the run began by `clock`; None: now.
    """

    def __init__(
        self,
        assignments: Sequence[Assignment],
        runners: Sequence[Runner],
        options: MeasureOptions,
        reporter: Reporter = SILENT,
        clock: Callable[[], float] = time.monotonic,
        started: float | None = None,
    ) -> None:
        self._assignments = assignments
        self._runners = list(runners)
        self._options = options
        self._reporter = reporter
        self._clock = clock
        self._lock = threading.Lock()  # guards logs and the reporter
        self._started = clock() if started is None else started
        self._stop = threading.Event()
        self._measured = 0
        self._waiting = 0  # jobs that no runner has begun
        self._wanted: dict[tuple[str, str, bool], list[Config]] = {}  # see `_prepare`

    def run(self) -> Progress:
        """Measure what is missing.

        Raises:
            TuningError: a runner cannot go on. What was measured is in the log.
            StoreError: the disk refuses.
        """
        reused = 0
        for item in self._assignments:
            item.writer.context(item.context)
            item.writer.points(item.points)
            known = item.writer.measurements.known
            reused += sum(len(known(item.context.id, p.id)) for p in item.points)
        jobs = [_Job(item, point) for item in self._assignments for point in _in_order(item.points)]
        self._drain("measure", jobs)
        self._drain("compare", self._cross())
        finished = not self._expired()
        return Progress(
            finished=finished, measured=self._measured, reused=reused, effort=self._effort()
        )

    def _cross(self) -> list[_Job]:
        """The configurations that matter, where they were not measured: so that the fit compares
        each of them on every point, and knows what a choice costs where pruning drops it."""
        jobs = []
        for item in self._assignments:
            matrix = item.writer.measurements.matrix(item.context).only(item.points)
            rows = make_rows(matrix.split()[0], _SHORTLIST_GOAL)
            if not rows.loss:
                continue
            columns = choose(rows.loss, useful_columns(rows.loss), self._options.shortlist)
            for point in _in_order(item.points):
                space = Space(item.candidates[point.id])
                missing = [c for c in map(matrix.configs.__getitem__, columns)
                           if matrix.cell(point, c) is None]  # fmt: skip
                for pruned in (False, True):
                    group = tuple(c for c in missing if space.admits(c) != pruned)
                    if group:
                        jobs.append(_Job(item, point, group, pruned))
        return jobs

    def _drain(self, stage: str, jobs: Sequence[_Job]) -> None:
        """Give jobs to runners as they become free, neighbours after each other."""
        self._reporter.stage(stage, total=len(jobs), unit="points")
        queue = list(jobs)
        idle = list(self._runners)
        running: dict[Future[None], Runner] = {}
        with ThreadPoolExecutor(max_workers=max(1, len(idle))) as pool:
            try:
                while (queue or running) and not (self._expired() and not running):
                    while idle and queue and not self._expired():
                        runner, job = idle.pop(), queue.pop(0)
                        self._waiting = len(queue)
                        running[pool.submit(self._job, runner, job, list(queue))] = runner
                    finished, _ = wait(running, self._patience(), return_when=FIRST_COMPLETED)
                    if not finished:
                        self._interrupt(running.values())
                    for future in finished:
                        idle.append(running.pop(future))
                        future.result()
            except BaseException:
                # Let the other runners end their stage: what they measured is written.
                self._stop.set()
                raise
        left = f", {len(queue)} points left when the budget ran out" if queue else ""
        self._reporter.done(f"{self._measured} results{left}")

    def _job(self, runner: Runner, job: _Job, queue: Sequence[_Job]) -> None:
        task = _task(job)
        batch = self._first(job)
        self._prepare(runner, [job, *queue])
        deadline = self._deadline()
        while batch and not self._expired():
            race(
                task,
                batch,
                job.assignment.candidates[job.point.id][0],
                runner,
                partial(self._cell, job),
                lambda _, outcomes: self._write(job, outcomes),
                self._options.rules,
                self._expired,
            )
            late = job.only is not None or self._clock() > deadline
            batch = [] if late else self._next(job)
        with self._lock:
            self._reporter.advance(1, note=self._note(job))

    def _prepare(self, runner: Runner, jobs: Sequence[_Job]) -> None:
        """Have the next points compiled on which anything is left to do."""
        found: list[tuple[_Job, list[Config]]] = []
        for job in jobs:
            name = (job.assignment.context.kernel, job.point.id, job.pruned)
            if name not in self._wanted:
                lookup = partial(self._cell, job)
                self._wanted[name] = in_race(self._first(job), lookup, self._options.rules)
            if self._wanted[name]:
                found.append((job, self._wanted[name]))
            if len(found) > _AHEAD:
                break
        for job, wanted in reversed(found):  # what is prepared last comes first
            runner.prepare(_task(job), wanted)

    def _first(self, job: _Job) -> list[Config]:
        if job.only is not None:
            return list(job.only)
        candidates = job.assignment.candidates[job.point.id]
        space = Space(candidates)
        with self._lock:
            known = self._known(job)
            enumerated = len(candidates) <= self._options.limits.enumerate
            neighbours = [] if enumerated else self._best_of_neighbours(job)
        batch = first_batch(space, candidates[0], neighbours, self._options.limits)
        # A resumed search starts from what it had found.
        return batch + [c for c in space.configs if config_key(c) in known and c not in batch]

    def _next(self, job: _Job) -> list[Config]:
        with self._lock:
            known = self._known(job)
        space = Space(job.assignment.candidates[job.point.id])
        return next_batch(space, known, self._options.limits)

    def _known(self, job: _Job) -> dict[str, Cell]:
        item = job.assignment
        return item.writer.measurements.known(item.context.id, job.point.id)

    def _best_of_neighbours(self, job: _Job) -> list[Config]:
        matrix = job.assignment.writer.measurements.matrix(job.assignment.context)
        others = [p for p in matrix.points if p.id != job.point.id and matrix.best(p) is not None]
        near = nearest_points(job.point.features, [p.features for p in others])
        good: list[Config] = []
        for index in near[:4]:
            working = [
                (cell.ms, config_key(c), c)
                for c in matrix.configs
                if (cell := matrix.cell(others[index], c)) is not None and cell.ms is not None
            ]
            good += [c for _, _, c in sorted(working, key=lambda w: (w[0], w[1]))[:3]]
        return good

    def _cell(self, job: _Job, config: Config) -> Cell | None:
        with self._lock:
            item = job.assignment
            return item.writer.measurements.cell(item.context.id, job.point.id, config)

    def _write(self, job: _Job, outcomes: Iterable[Outcome]) -> None:
        found = list(outcomes)
        with self._lock:
            item = job.assignment
            item.writer.results(item.context.id, job.point.id, found, pruned=job.pruned)
            self._measured += len(found)
            for outcome in found:
                if outcome.reason is not None:
                    self._reporter.event(
                        "failure",
                        kernel=item.context.kernel,
                        case=job.point.case,
                        config=dict(outcome.config),
                        reason=outcome.reason,
                    )

    def _note(self, job: _Job) -> str:
        matrix = job.assignment.writer.measurements.matrix(job.assignment.context)
        best = matrix.best(job.point)
        name = f"{job.assignment.context.kernel} {job.point.case}"
        return f"{name}: nothing works" if best is None else f"{name}: best {best:.4g} ms"

    def _deadline(self) -> float:
        """When the search on one point must end so that all points get their share of a budget."""
        if self._options.budget is None:
            return math.inf
        left = self._options.budget - (self._clock() - self._started)
        return self._clock() + left * len(self._runners) / max(1, self._waiting + 1)

    def _patience(self) -> float | None:
        """Seconds until runners are interrupted; None if that never happens, or has happened."""
        if self._options.budget is None or self._stop.is_set():
            return None
        return max(0.0, self._options.budget + _GRACE - (self._clock() - self._started))

    def _interrupt(self, runners: Iterable[Runner]) -> None:
        """End what the budget did not leave time for: a stage of a race is written whole or not."""
        self._stop.set()
        for runner in runners:
            runner.interrupt()

    def _effort(self) -> dict[str, float]:
        total: dict[str, float] = {"total": self._clock() - self._started}
        for runner in self._runners:
            for name, value in runner.effort().items():
                total[name] = total.get(name, 0.0) + value
        return total

    def _expired(self) -> bool:
        budget = self._options.budget
        late = budget is not None and self._clock() - self._started > budget
        return late or self._stop.is_set()


def _task(job: _Job) -> Task:
    return Task(
        kernel=job.assignment.context.kernel,
        case=job.point.case,
        point=job.point.id,
        features=job.point.features,
    )


def _in_order(points: Sequence[Point]) -> list[Point]:
    """A walk along which each point is near the one before, so that knowledge is there to share."""
    left = list(points)
    walk: list[Point] = []
    while left:
        origin = walk[-1].features if walk else left[0].features
        walk.append(left.pop(nearest_points(origin, [p.features for p in left])[0]))
    return walk
