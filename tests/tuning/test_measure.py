"""Collect, measure and build in one go on a modelled device, and what is refused on the way."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tuning_samples import SOURCE, configs, context, points, write_measurements

from kernel_builder.tuning.account import account
from kernel_builder.tuning.build import build_tree, newest_context
from kernel_builder.tuning.fit import FitOptions
from kernel_builder.tuning.log import Measurements
from kernel_builder.tuning.matrix import Cell, Matrix, Point, config_key
from kernel_builder.tuning.measure import (
    MeasureRequest,
    measure,
    noise_of,
    refuse_unstable,
)
from kernel_builder.tuning.runners.process import ProcessRunner
from kernelhub.errors import TuningError
from kernelhub.reporter import Reporter


def launches(kernel: str = "kernels.mm", source: str = SOURCE) -> list[dict[str, Any]]:
    return [
        {
            "kernel": kernel,
            "source": source,
            "point": f"{kernel}-{point.id}",
            "case": point.case,
            "features": dict(point.features),
            "weight": 1.0,
            "held_out": point.held_out,
            "candidates": configs(),
        }
        for point in points()
    ]


Runners = Callable[..., list[ProcessRunner]]


@pytest.fixture
def runners() -> Iterator[Runners]:
    started: list[ProcessRunner] = []

    def start(*each: dict[str, Any]) -> list[ProcessRunner]:
        mine = [ProcessRunner("model", arguments) for arguments in each]
        started.extend(mine)
        return mine

    yield start
    for runner in started:
        runner.close()


class Listener(Reporter):
    def __init__(self) -> None:
        self.events: dict[str, dict[str, object]] = {}
        self.said: list[str] = []
        self.notes: list[str] = []
        self.totals: dict[str, int | None] = {}

    def stage(self, name: str, total: int | None = None, unit: str = "") -> None:
        self.totals[name] = total

    def advance(self, amount: int = 1, note: str = "") -> None:
        self.notes.append(note)

    def say(self, text: str) -> None:
        self.said.append(text)

    def event(self, kind: str, **facts: object) -> None:
        self.events[kind] = facts


def test_two_kernels_on_two_devices_from_launches_to_trees(
    tmp_path: Path, runners: Runners
) -> None:
    found = {"launches": [*launches("kernels.mm"), *launches("kernels.mm2")]}
    listener = Listener()
    measured, progress = measure(runners(found, found), tmp_path, MeasureRequest(), listener)
    assert progress.finished
    assert [m.path.name for m in measured] == [
        "kernels.mm.model-132.jsonl",
        "kernels.mm2.model-132.jsonl",
    ]
    assert listener.totals["measure"] == 24
    assert any("kernels.mm2 mm/M=" in note and "best" in note for note in listener.notes)
    for item in measured:
        log = Measurements.read(item.path)
        report = build_tree(log, newest_context(log, SOURCE), FitOptions(max_slowdown=1.3))
        assert report.misses == ()
        assert report.held_out.geomean < report.single.geomean


def test_a_run_says_how_it_measured_how_sure_it_is_and_where_the_time_went(
    tmp_path: Path, runners: Runners
) -> None:
    listener = Listener()
    pool = runners({"launches": launches(), "noise": 0.01})
    measured, progress = measure(pool, tmp_path, MeasureRequest(), listener)
    event = listener.events["measured"]
    assert event["policy"] == {"method": "model", "noise": 0.01, "seed": 0}
    assert event["points"] == len(points())
    assert 0 < event["largest_error"] == pytest.approx(max(measured[0].noise.values()), abs=1e-5)
    spent = listener.events["effort"]
    assert {"total", "start", "collect", "check", "measure"} <= spent.keys()
    assert spent["total"] >= spent["check"] + spent["measure"] > 0
    text = account(progress, measured)
    assert f"{progress.measured} results measured, 0 were known; best times ±" in text
    assert "s in all; start" in text


def test_one_kernel_can_be_chosen_and_leaves_the_other_alone(
    tmp_path: Path, runners: Runners
) -> None:
    found = {"launches": [*launches("kernels.mm"), *launches("kernels.mm2")]}
    measured, _ = measure(runners(found), tmp_path, MeasureRequest(kernels=("kernels.mm2",)))
    assert [m.context.kernel for m in measured] == ["kernels.mm2"]
    assert [p.name for p in tmp_path.glob("*.jsonl")] == ["kernels.mm2.model-132.jsonl"]


def test_an_unknown_kernel_is_an_error_that_names_those_there_are(
    tmp_path: Path, runners: Runners
) -> None:
    with pytest.raises(TuningError, match=r"called kernels\.nn") as caught:
        measure(
            runners({"launches": launches()}), tmp_path, MeasureRequest(kernels=("kernels.nn",))
        )
    assert "kernels.mm" in str(caught.value.hint)


def test_devices_that_differ_are_refused(tmp_path: Path, runners: Runners) -> None:
    other = {
        "name": "Model 114",
        "arch": "sm_90",
        "sm_count": 114,
        "memory": 1,
        "shared_memory": 232448,
    }
    pair = runners({"launches": launches()}, {"launches": launches(), "device": other})
    with pytest.raises(TuningError, match="devices differ: Model 132 and Model 114"):
        measure(pair, tmp_path, MeasureRequest())


def test_results_for_another_source_are_counted_and_left_aside(
    tmp_path: Path, runners: Runners
) -> None:
    measure(runners({"launches": launches(source="sha256:old")}), tmp_path, MeasureRequest())
    listener = Listener()
    measured, progress = measure(
        runners({"launches": launches()}), tmp_path, MeasureRequest(), listener
    )
    assert progress.reused == 0
    assert measured[0].foreign == len(points()) * len(configs())
    assert "left aside" in listener.said[0]


def test_fresh_measures_again_and_going_on_then_finds_the_new_series(
    tmp_path: Path, runners: Runners
) -> None:
    pool = runners({"launches": launches()})
    measure(pool, tmp_path, MeasureRequest())
    measured, progress = measure(pool, tmp_path, MeasureRequest(fresh=True))
    assert progress.reused == 0
    assert measured[0].context.policy["series"] == 2
    measured, progress = measure(pool, tmp_path, MeasureRequest())
    assert measured[0].context.policy["series"] == 2
    assert progress.measured == 0


def test_weights_and_flags_follow_the_workloads_without_measuring_again(
    tmp_path: Path, runners: Runners
) -> None:
    measure(runners({"launches": launches()}), tmp_path, MeasureRequest())
    heavy = [{**found, "weight": 7.0, "held_out": False} for found in launches()]
    measured, progress = measure(runners({"launches": heavy}), tmp_path, MeasureRequest())
    assert progress.measured == 0
    found = Measurements.read(measured[0].path).points.values()
    assert {(p.weight, p.held_out) for p in found} == {(7.0, False)}


def test_noise_is_refused_unless_allowed(tmp_path: Path, runners: Runners) -> None:
    noisy = {"launches": launches(), "noise": 0.8}
    with pytest.raises(TuningError, match="not stable") as caught:
        measure(runners(noisy), tmp_path, MeasureRequest())
    assert "--allow-unstable" in str(caught.value.hint)
    _, progress = measure(runners(noisy), tmp_path, MeasureRequest(allow_unstable=True))
    assert progress.reused > 0


def test_only_the_best_time_of_a_point_must_be_stable() -> None:
    point = Point(id="p", features={}, case="c")
    cells = {
        ("p", config_key({"a": 1})): Cell(ms=1.0, error=0.01),
        ("p", config_key({"a": 2})): Cell(ms=2.0, error=1.0),
    }
    matrix = Matrix(kernel="k", points=(point,), configs=({"a": 1}, {"a": 2}), cells=cells)
    assert noise_of(matrix) == {"c": 0.01}
    refuse_unstable({"k": noise_of(matrix)})
    with pytest.raises(TuningError, match=r"k c \(±6%\)"):
        refuse_unstable({"k": {"c": 0.06}})


def test_a_measurement_file_of_other_hardware_is_not_built_from(tmp_path: Path) -> None:
    path = tmp_path / "kernels.mm.model-132.jsonl"
    matrix = Matrix(
        kernel="mm",
        points=(Point(id="p", features={"M": 1}),),
        configs=({"BM": 1},),
        cells={("p", config_key({"BM": 1})): Cell(ms=1.0)},
    )
    write_measurements(path, matrix, context(policy={"method": "model", "l2": "cold"}))
    log = Measurements.read(path)
    with pytest.raises(TuningError, match="no measurements with a warm L2"):
        newest_context(log, SOURCE, "warm")
    assert newest_context(log, SOURCE, "cold").policy["l2"] == "cold"
    assert json.loads(path.read_text().splitlines()[0])["device"]["name"] == "Model 132"
