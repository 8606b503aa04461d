"""Several devices at once: each has a worker, nothing is measured twice, what is lost is replaced.

On modelled devices everywhere, and on two GPUs where there are two (`-m gpu`).
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from tuning_samples import SOURCE, configs, points

from kernel_builder.tuning import machine
from kernel_builder.tuning.measure import MeasureRequest, measure
from kernel_builder.tuning.plan import Progress
from kernel_builder.tuning.race import RaceRules
from kernel_builder.tuning.runners.process import ProcessRunner
from kernelhub.reporter import Reporter

ROOT = Path(__file__).resolve().parents[2]
STAGES = {*RaceRules().stages}  # samples that a configuration has when its race is over
Start = Callable[[], list[ProcessRunner]]

# A run in a process of its own, to be killed. Arguments: what makes the runners, a folder.
RUN = """
import json, sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from test_several import ALLOWED, runners_of
from kernel_builder.tuning import machine
from kernel_builder.tuning.measure import measure
with machine.running(runners_of(json.loads(sys.argv[1]))) as runners:
    measure(runners, Path(sys.argv[2]), ALLOWED)
"""
ALLOWED = MeasureRequest(allow_unstable=True)


def runners_of(facts: dict[str, Any]) -> list[ProcessRunner]:
    """Two runners from plain data."""
    if "site" in facts:
        from kernel_builder.tuning.site import Site

        return machine.device_runners(Site(**facts["site"]), 2, "warm")
    return [ProcessRunner("model", facts) for _ in range(2)]


@pytest.fixture(params=["model", pytest.param("device", marks=pytest.mark.gpu)])
def facts(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """What makes two runners."""
    if request.param == "device":
        pytest.importorskip("torch")
        if machine.gpu_count() < 2:
            pytest.skip("needs two GPUs")
        return {"site": _matmul(tmp_path)}
    launches = [
        {"kernel": "mm", "source": SOURCE, "point": point.id, "case": point.case,
         "features": dict(point.features), "weight": 1.0, "held_out": False,
         "candidates": configs()}
        for point in points()
    ]  # fmt: skip
    return {"launches": launches, "seconds": 0.002}


def _matmul(folder: Path) -> dict[str, Any]:
    from benchmarks.subjects import subject
    from benchmarks.tuning_time import narrowed

    chosen = subject("matmul")
    workloads = narrowed(Path(chosen.site.workloads), 6, folder)
    return asdict(replace(chosen.site, workloads=str(workloads)))


@pytest.fixture
def start(facts: dict[str, Any]) -> Iterator[Start]:
    started: list[ProcessRunner] = []

    def start() -> list[ProcessRunner]:
        mine = runners_of(facts)
        started.extend(mine)
        return mine

    yield start
    for runner in started:
        runner.close()


def rows(folder: Path) -> list[dict[str, Any]]:
    """The results in the order in which they were written, but for a line that is not whole."""
    (file,) = folder.glob("*.jsonl")
    found = [json.loads(line) for line in file.read_bytes().split(b"\n")[:-1]]
    return [row for row in found if "result" in row]


def check_whole(folder: Path, progress: Progress) -> Counter[str]:
    """Every configuration has a result on every point, and no sample more than one race takes."""
    assert progress.finished
    samples: Counter[tuple[str, str]] = Counter()
    failed: dict[tuple[str, str], str] = {}
    for row in rows(folder):
        key = row["result"][1], json.dumps(row["config"], sort_keys=True)
        samples[key] += len(row.get("samples", ()))
        if "reason" in row:
            assert key not in failed
            failed[key] = row["reason"]
    cells = {point for point, _ in samples}, {config for _, config in samples}
    assert len(samples) == len(cells[0]) * len(cells[1])
    assert {count for key, count in samples.items() if key not in failed} <= STAGES
    return Counter(failed.values())


def test_two_devices_measure_at_once_and_nothing_twice(tmp_path: Path, start: Start) -> None:
    runners = start()
    _, progress = measure(runners, tmp_path, ALLOWED)
    assert all(runner.effort()["measure"] > 0 for runner in runners)
    assert not check_whole(tmp_path, progress)
    _, again = measure(start(), tmp_path, ALLOWED)
    assert (again.measured, again.reused) == (0, len({_key(row) for row in rows(tmp_path)}))


def _key(row: dict[str, Any]) -> str:
    return json.dumps([row["result"], row["config"]], sort_keys=True)


class Killer(Reporter):
    """Kills a worker when the first point is done."""

    def __init__(self, victim: ProcessRunner) -> None:
        self.victim: ProcessRunner | None = victim

    def advance(self, amount: int = 1, note: str = "") -> None:
        if self.victim is not None:
            child = self.victim._worker._child
            assert child is not None
            child.process.kill()
            self.victim = None


def test_a_worker_that_is_killed_is_replaced(tmp_path: Path, start: Start) -> None:
    runners = start()
    _, progress = measure(runners, tmp_path, ALLOWED, Killer(runners[1]))
    assert runners[1].restarts == 1
    assert runners[0].restarts == 0
    failed = check_whole(tmp_path, progress)
    assert failed["fault"] <= 1  # what was under way alone is blamed
    assert failed.keys() <= {"fault"}


def test_a_run_that_is_killed_is_gone_on_with(
    tmp_path: Path, facts: dict[str, Any], start: Start
) -> None:
    command = [
        sys.executable, "-c", RUN, json.dumps(facts), str(tmp_path), str(Path(__file__).parent)
    ]  # fmt: skip
    with subprocess.Popen(command) as process:
        limit = time.monotonic() + 60
        while not list(tmp_path.glob("*.jsonl")) or len(rows(tmp_path)) < 60:
            assert process.poll() is None, "it ended before it could be killed"
            assert time.monotonic() < limit
            time.sleep(0.02)
        process.kill()
    before = rows(tmp_path)
    _, progress = measure(start(), tmp_path, ALLOWED)
    assert rows(tmp_path)[: len(before)] == before
    assert progress.reused == len({_key(row) for row in before})
    assert not check_whole(tmp_path, progress)
