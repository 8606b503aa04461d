"""The engine on modelled devices: complete, durable, and unmoved by what candidates do."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tuning_samples import configs, context, points

from kernel_builder.tuning.engine import Engine
from kernel_builder.tuning.log import Measurements
from kernel_builder.tuning.log_writer import Writer
from kernel_builder.tuning.matrix import Matrix, Point
from kernel_builder.tuning.plan import Assignment, MeasureOptions, Progress
from kernel_builder.tuning.race import RaceRules
from kernel_builder.tuning.runner import Outcome, Task
from kernel_builder.tuning.runners.model import model_ms
from kernel_builder.tuning.runners.process import ProcessRunner, Timeouts
from kernel_builder.tuning.search import Limits
from kernelhub.errors import TuningError
from kernelhub.formats.tree import Config

QUICK = Timeouts(check=1.0, measure=5.0)
STAGES = RaceRules().stages


def reasons(matrix: Matrix) -> Counter[str | None]:
    return Counter(cell.reason for cell in matrix.cells.values())


def test_every_configuration_of_a_small_space_is_measured_everywhere(
    tmp_path: Path, measure: Callable[..., Any]
) -> None:
    progress, matrix = measure(tmp_path / "a.jsonl", workers=2)
    assert progress.finished
    assert len(matrix.cells) == len(points()) * len(configs())
    for point in matrix.points:
        truth = min(model_ms(point.features, c) for c in configs())
        assert matrix.best(point) == pytest.approx(truth, rel=0.02)


def test_clear_losers_get_few_samples_and_the_best_get_many(
    tmp_path: Path, measure: Callable[..., Any]
) -> None:
    _, matrix = measure(tmp_path / "a.jsonl")
    for point in matrix.points:
        cells = [matrix.cell(point, c) for c in matrix.configs]
        slow = max((c for c in cells if c and c.ms), key=lambda c: c.ms or 0)
        best = matrix.best_cell(point)
        assert best is not None
        assert slow.samples == STAGES[0] < STAGES[1] <= best.samples <= STAGES[-1]


def test_going_on_measures_nothing_again(tmp_path: Path, measure: Callable[..., Any]) -> None:
    path = tmp_path / "a.jsonl"
    _, first = measure(path)
    size = path.stat().st_size
    progress, second = measure(path)
    assert progress.measured == 0
    assert progress.reused == len(first.cells)
    assert second.cells == first.cells
    assert b"result" not in path.read_bytes()[size:]


def test_candidates_in_trouble_are_recorded_and_the_run_goes_on(
    tmp_path: Path, measure: Callable[..., Any]
) -> None:
    troubles = [
        {"kind": "die", "config": {"BM": 128, "BN": 128, "num_warps": 4, "num_stages": 2}},
        {"kind": "poison", "config": {"BM": 32, "BN": 64, "num_warps": 8, "num_stages": 3}},
        {"kind": "hang", "config": {"BM": 64, "BN": 64, "num_warps": 4, "num_stages": 3},
         "features": {"M": 16, "K": 512}},
        {"kind": "wrong_result", "config": {"BM": 32, "BN": 128}},
        {"kind": "out_of_resources", "config": {"BM": 128, "BN": 64, "num_stages": 3}},
    ]  # fmt: skip
    _, matrix = measure(tmp_path / "a.jsonl", troubles=troubles, workers=2, timeouts=QUICK)
    count = len(points())
    assert reasons(matrix) == {
        None: len(matrix.cells) - 8 * count - 2,
        "fault": 2 * count,
        "timeout": 2,
        "wrong_result": 4 * count,
        "out_of_resources": 2 * count,
    }
    died = next(c for c in matrix.cells.values() if "signal 6" in c.detail)
    assert died.reason == "fault"


def test_a_worker_that_always_dies_fails_all_and_does_not_loop(
    tmp_path: Path, measure: Callable[..., Any]
) -> None:
    _, matrix = measure(
        tmp_path / "a.jsonl", troubles=[{"kind": "die", "features": {"M": 16, "N": 512, "K": 512}}]
    )
    dead = [p for p in matrix.points if matrix.best(p) is None]
    assert [p.id for p in dead] == ["16-512-512"]


def test_a_core_that_cannot_start_is_an_error() -> None:
    runner = ProcessRunner("model", {"no_such_argument": 1})
    with pytest.raises(TuningError, match="could not start"):
        _ = runner.station
    runner.close()


def test_several_suspects_are_heard_one_by_one() -> None:
    """A hang takes the whole batch down; only the guilty one is recorded."""
    guilty = configs()[5]
    runner = ProcessRunner(
        "model", {"troubles": [{"kind": "hang", "config": guilty}]}, timeouts=QUICK
    )
    task = Task(kernel="mm", case="c", point="p", features={"M": 64, "N": 64, "K": 64})
    outcomes = list(runner.check(task, configs()))
    runner.close()
    assert [o.config for o in outcomes if o.reason is not None] == [guilty]
    assert len(outcomes) == len(configs())


def test_a_large_space_is_searched_and_neighbours_share(
    tmp_path: Path, measure: Callable[..., Any]
) -> None:
    space = [
        {"BM": bm, "BN": bn, "num_warps": w, "num_stages": s}
        for bm, bn, w, s in itertools.product(
            (8, 16, 32, 64, 128, 256), (8, 16, 32, 64, 128, 256), (1, 2, 4, 8, 16), (1, 2, 3, 4)
        )
    ]
    limits = Limits(enumerate=64, most=96)
    _, matrix = measure(
        tmp_path / "a.jsonl", admitted=lambda _: space, options=MeasureOptions(limits=limits)
    )
    for point in matrix.points:
        tried = [c for c in space if matrix.cell(point, c) is not None]
        assert len(tried) < len(space) / 4
        truth = min(model_ms(point.features, c) for c in space)
        assert (matrix.best(point) or 0) <= truth * 1.06


def test_what_the_author_prunes_is_measured_only_if_it_matters_elsewhere(
    tmp_path: Path, measure: Callable[..., Any]
) -> None:
    def admitted(point: Point) -> list[dict[str, Any]]:
        return [c for c in configs() if c["BM"] <= point.features["M"] * 2]  # type: ignore[operator]

    _, matrix = measure(tmp_path / "a.jsonl", admitted=admitted)
    small = [p for p in matrix.points if p.features["M"] == 16]
    for point in small:
        best = matrix.best_cell(point)
        assert best is not None
        assert not best.pruned
        pruned = [c for c in matrix.configs if (cell := matrix.cell(point, c)) and cell.pruned]
        assert all(c["BM"] > 32 for c in pruned)


def test_a_budget_ends_the_run_and_the_rest_can_follow(
    tmp_path: Path, measure: Callable[..., Any]
) -> None:
    path = tmp_path / "a.jsonl"
    progress, _ = measure(path, options=MeasureOptions(budget=0.0))
    assert not progress.finished
    progress, matrix = measure(path)
    assert progress.finished
    assert len(matrix.points) == len(points())


VICTIM = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from kernel_builder.tuning.engine import Assignment, Engine, MeasureOptions
from kernel_builder.tuning.log_writer import Writer
from kernel_builder.tuning.runners.process import ProcessRunner
from tuning_samples import configs, context, points

if __name__ == "__main__":
    runner = ProcessRunner("model", {"seconds": 0.002})
    where = context(tools=runner.station.tools, policy=runner.station.policy)
    writer = Writer(Path(sys.argv[1]))
    with writer.open():
        job = Assignment(context=where, writer=writer, points=points(),
                         candidates={p.id: configs() for p in points()})
        Engine([job], [runner], MeasureOptions()).run()
    runner.close()
    print("finished", flush=True)
"""


def test_sigkill_at_any_time_loses_only_what_was_in_flight(tmp_path: Path) -> None:
    path, script = tmp_path / "a.jsonl", tmp_path / "victim.py"
    script.write_text(VICTIM)
    command = [sys.executable, str(script), str(path), str(Path(__file__).parent)]
    moment = random.Random(7)
    before: list[str] = []
    for attempt in range(12):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as victim:
            if attempt < 5:
                known = _lines(path)
                while _lines(path) <= known and victim.poll() is None:
                    time.sleep(0.01)
                time.sleep(moment.uniform(0.0, 0.4))
                victim.send_signal(signal.SIGKILL)
            output, _ = victim.communicate(timeout=60)
        found = Measurements.read(path)  # readable after every death
        after = _results(path)
        assert after[: len(before)] == before  # nothing that was known is lost or changed
        before = after
        if "finished" in output:
            break
    assert "finished" in output
    (where,) = found.contexts.values()
    matrix = found.matrix(where)
    assert len(matrix.cells) == len(points()) * len(configs())
    # Nothing is measured twice: no cell has more samples than an undisturbed race takes.
    assert {cell.samples for cell in matrix.cells.values()} <= {*STAGES}
    assert min(cell.samples for cell in matrix.cells.values()) == STAGES[0]


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def _results(path: Path) -> list[str]:
    lines = path.read_bytes().split(b"\n")[:-1]
    return [line.decode() for line in lines if b'"result"' in line]


def test_a_worker_ends_with_its_parent(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(
        "import os, time\n"
        "from kernel_builder.tuning.runners.process import ProcessRunner\n"
        "runner = ProcessRunner('model', {})\n"
        "runner.station\n"
        "print(runner._worker._child.process.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()
    for _ in range(100):
        if not _alive(pid):
            return
        time.sleep(0.1)
    pytest.fail("the worker outlived its parent")


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not (stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z")


def test_events_are_json(tmp_path: Path, measure: Callable[..., Any]) -> None:
    _, matrix = measure(
        tmp_path / "a.jsonl", troubles=[{"kind": "wrong_result", "config": {"BM": 32}}]
    )
    failed = [c for c in matrix.cells.values() if c.reason]
    assert json.dumps([c.detail for c in failed])


class Recorder:
    """A runner in this process that notes what it is asked for."""

    def __init__(self, seconds: float = 0.0, hang: float = 0.0) -> None:
        self.seconds = seconds
        self.hang = hang
        self.prepared: list[tuple[str, int]] = []
        self.checked: list[str] = []
        self.interrupted = threading.Event()

    def prepare(self, task: Task, configs: Sequence[Config]) -> None:
        self.prepared.append((task.point, len(configs)))

    def check(
        self, task: Task, configs: Sequence[Config], base: Config | None = None
    ) -> Iterator[Outcome]:
        self.checked.append(task.point)
        for config in configs:
            time.sleep(self.seconds)
            yield Outcome(config=config)

    def measure(self, task: Task, configs: Sequence[Config], rounds: int) -> Iterator[Outcome]:
        if self.interrupted.wait(self.hang):
            return
        for config in configs:
            ms = model_ms(task.features, config)
            yield Outcome(config=config, samples=(ms,) * rounds)

    def interrupt(self) -> None:
        self.interrupted.set()

    def effort(self) -> dict[str, float]:
        return {"check": 1.0}


def engine_run(path: Path, runner: Recorder, **options: Any) -> Progress:
    writer = Writer(path)
    with writer.open():
        assignment = Assignment(
            context=context(),
            writer=writer,
            points=points(),
            candidates={p.id: configs() for p in points()},
        )
        return Engine([assignment], [runner], MeasureOptions(**options)).run()  # type: ignore[list-item]


def test_points_are_prepared_some_ahead_and_only_where_something_is_left(
    tmp_path: Path,
) -> None:
    first = Recorder()
    progress = engine_run(tmp_path / "a.jsonl", first)
    assert progress.effort["check"] == 1.0
    assert len(set(first.prepared)) == len(points())
    assert first.prepared[4][0] == first.checked[0]  # four ahead, the nearest is prepared last
    assert {count for _, count in first.prepared} == {len(configs())}
    # All but the last three points are decided: those cost nothing, not even a look.
    lines = (tmp_path / "a.jsonl").read_text().splitlines(keepends=True)
    left = {p.id for p in points()[-3:]}
    kept = [x for x in lines if json.loads(x).get("result", ["", ""])[1] not in left]
    (tmp_path / "b.jsonl").write_text("".join(kept))
    second = Recorder()
    engine_run(tmp_path / "b.jsonl", second)
    assert {point for point, _ in second.prepared} == left
    assert set(second.checked) == left
    third = Recorder()
    engine_run(tmp_path / "a.jsonl", third)
    assert third.prepared == third.checked == []


def test_only_configurations_in_the_race_are_prepared_again(tmp_path: Path) -> None:
    engine_run(tmp_path / "a.jsonl", Recorder())
    lines = (tmp_path / "a.jsonl").read_text().splitlines(keepends=True)
    point = points()[0].id
    cut = [
        number
        for number, line in enumerate(lines)
        if json.loads(line).get("result", ["", ""])[1] == point
    ][len(configs())]
    (tmp_path / "b.jsonl").write_text("".join(lines[:cut]))
    again = Recorder()
    engine_run(tmp_path / "b.jsonl", again)
    assert 0 < dict(again.prepared)[point] < len(configs())


@pytest.mark.parametrize("trouble", [{"seconds": 0.05}, {"hang": 60.0}])
def test_the_budget_bounds_the_run(tmp_path: Path, trouble: dict[str, float]) -> None:
    start = time.monotonic()
    progress = engine_run(tmp_path / "a.jsonl", Recorder(**trouble), budget=0.5)
    assert time.monotonic() - start < 6
    assert not progress.finished
    assert all(
        cell.reason is None
        for cell in Measurements.read(tmp_path / "a.jsonl").matrix(context()).cells.values()
    )


def test_an_interrupted_worker_is_no_fault_of_any_configuration(
    tmp_path: Path, measure: Callable[..., Any]
) -> None:
    start = time.monotonic()
    progress, matrix = measure(
        tmp_path / "a.jsonl",
        troubles=[{"kind": "hang"}],
        options=MeasureOptions(budget=1.0),
    )
    assert time.monotonic() - start < 20
    assert not progress.finished
    assert not matrix.cells
