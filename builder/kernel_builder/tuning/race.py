"""Time many configurations of one point with few samples for clear losers and many for the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from kernel_builder.tuning.matrix import Cell, config_key
from kernel_builder.tuning.runner import Outcome, Runner, Task
from kernelhub.formats.tree import Config

Lookup = Callable[[Config], "Cell | None"]
Sink = Callable[[Task, "Iterable[Outcome]"], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RaceRules:
    """How many samples, and who is out.

    Attributes:
        stages: samples that each configuration still in the race has after each stage.
        sigmas: a configuration is out when it is slower than the best by this many errors.
        margin: and by this ratio at least; closer ones keep their chance whatever the noise says.
        precise: all are out of the race when the best ones' relative errors are below this.
    """

    stages: tuple[int, ...] = (4, 8, 16)
    sigmas: float = 3.0
    margin: float = 1.05
    precise: float = 0.002


def race(
    task: Task,
    configs: Sequence[Config],
    default: Config,
    runner: Runner,
    lookup: Lookup,
    sink: Sink,
    rules: RaceRules,
    expired: Callable[[], bool],
) -> None:
    """Check and time configurations of one point. What is known already is not done again.

    Args:
        default: the author's own choice; its result is right where there is no reference.
        lookup: what is known of a configuration on this point, as the sink's writes change it.
        sink: takes results as they arrive and makes them durable.
        expired: whether the time for tuning is used up; asked between stages.
    """
    ready: set[str] = set()
    while not expired():
        # Until nothing is left to do: a later sample may reopen what an earlier one had decided,
        # and a run that goes on after this one must find the race as finished as it was left.
        stage, wanted = _next_stage(in_race(configs, lookup, rules), lookup, rules)
        unchecked = [c for c in wanted if config_key(c) not in ready]
        base = default if _works(lookup(default)) else None
        for outcome in runner.check(task, unchecked, base) if unchecked else ():
            if outcome.reason is None:
                ready.add(config_key(outcome.config))
            else:
                sink(task, [outcome])
        if expired():
            return
        groups = _by_missing([c for c in wanted if config_key(c) in ready], stage, lookup)
        if not groups and not unchecked:
            return
        for missing, group in groups:
            # One write for the stage: its samples are interleaved, so they are one measurement.
            sink(task, list(runner.measure(task, group, missing)))


def _next_stage(
    configs: Sequence[Config], lookup: Lookup, rules: RaceRules
) -> tuple[int, list[Config]]:
    """The lowest stage that some have not reached, and those that have not."""
    for stage in rules.stages:
        wanted = [c for c in configs if _samples(lookup(c)) < stage]
        if wanted:
            return stage, wanted
    return 0, []


def in_race(configs: Sequence[Config], lookup: Lookup, rules: RaceRules) -> list[Config]:
    """Configurations that may still be the best: not failed, not clearly slower, not decided."""
    times = {config_key(c): lookup(c) for c in configs}
    timed = [c for c in times.values() if c is not None and c.ms is not None]
    if not timed:
        return [c for c in configs if times[config_key(c)] is None]
    best = min(timed, key=lambda c: c.ms or 0.0)

    def open_(cell: Cell | None) -> bool:
        if cell is None:
            return True
        if cell.ms is None or best.ms is None or _slower(cell, best, rules):
            return False
        return cell.samples < rules.stages[1] or cell.error > rules.precise * cell.ms

    return [c for c in configs if open_(times[config_key(c)])]


def _slower(cell: Cell, best: Cell, rules: RaceRules) -> bool:
    assert cell.ms is not None and best.ms is not None  # noqa: S101, PT018 - the caller looked
    noise = rules.sigmas * (cell.error**2 + best.error**2) ** 0.5
    return cell.ms > best.ms * rules.margin and cell.ms - best.ms > noise


def _works(cell: Cell | None) -> bool:
    return cell is None or cell.reason is None


def _samples(cell: Cell | None) -> int:
    return 0 if cell is None else cell.samples


def _by_missing(
    wanted: Sequence[Config], stage: int, lookup: Lookup
) -> list[tuple[int, list[Config]]]:
    """Group by the number of samples that are missing, which differs after a resumed run."""
    groups: dict[int, list[Config]] = {}
    for config in wanted:
        groups.setdefault(stage - _samples(lookup(config)), []).append(config)
    return sorted(groups.items())
