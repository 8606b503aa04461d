"""Two processes' measurements of the same cells: what deviates, and what a choice of one costs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from benchmarks import repeat

POINT = ["context", "point"]


def write(folder: Path, cells: Mapping[int, Sequence[float]]) -> None:
    """One process's file, one line for each cell's first sample and one for the rest."""
    folder.mkdir(parents=True)
    device = {"context": "context", "device": {"name": "Model"}, "tools": {}}
    rows = [device, {"result": POINT, "config": {"B": 99}, "reason": "fault"}]
    rows += [
        {"result": POINT, "config": {"B": block}, "samples": list(part)}
        for block, samples in cells.items()
        for part in (samples[:1], samples[1:])
    ]
    (folder / "kernels.mm.model.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    """The second process is twice as slow in all, and half of the graphs of its best are slower."""
    write(tmp_path / "a", {1: [1.0, 1.0], 2: [1.1, 1.1], 3: [2.0, 2.0]})
    write(tmp_path / "b", {1: [3.0, 2.0], 2: [2.2, 2.2], 3: [4.0, 4.0]})
    return tmp_path


def test_lowest_and_median_are_told_apart(measured: Path) -> None:
    lowest, median = repeat.figures(measured, None)
    assert lowest.name == f"{measured.name}, a and b: mm, lowest"
    assert (lowest.value, median.value) == (0.0, 11.8)  # 1.1 here, 2.5 / 2.2 there
    assert "worst 1.136 of the best" in median.note
    assert "p99 0.0%, 0% by more" in lowest.note
    assert "1 points, 3 cells" in lowest.note


def test_a_deviation_beyond_its_error_is_counted(measured: Path) -> None:
    (figure, _) = repeat.figures(measured, 1)  # samples alone have no error
    assert "33% by more than twice their error" in figure.note
    samples = [repeat.read(measured / name / "kernels.mm.model.jsonl") for name in "ab"]
    (pair,) = repeat.paired(*samples, repeat.SUMMARIES["lowest"], 1)
    found = repeat.repeated([pair])
    assert found.deviations == pytest.approx([1.0, 1.0, 1.5])
    assert found.costs == pytest.approx([3.0 / 2.2, 1.1])


def test_processes_with_nothing_in_common_are_an_error(tmp_path: Path) -> None:
    write(tmp_path / "a", {1: [1.0, 1.0]})
    write(tmp_path / "b", {2: [1.0, 1.0]})
    with pytest.raises(SystemExit, match="a and b: mm, lowest: no cell in common"):
        repeat.figures(tmp_path, None)
