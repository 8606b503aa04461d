"""The measurement log: durable, keyed by content, tolerant of a torn end and of nothing else."""

from __future__ import annotations

import errno
import json
import math
import multiprocessing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tuning_samples import context

from kernel_builder.tuning.log import Measurements
from kernel_builder.tuning.log_writer import Writer
from kernel_builder.tuning.matrix import Point
from kernel_builder.tuning.runner import Outcome
from kernel_builder.tuning.summary import lowest
from kernelhub.errors import FormatError, StoreError, TuningError

POINT = Point(id="p", features={"M": 4}, case="mm/M=4")
CONFIG = {"BLOCK": 64}


def write(path: Path, *outcomes: Outcome) -> None:
    with Writer(path).open() as writer:
        writer.context(context())
        writer.points([POINT])
        writer.results(context().id, "p", outcomes)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    write(path, Outcome(config=CONFIG, samples=(1.0, 3.0, 2.0)))
    write(
        path, Outcome(config=CONFIG, samples=(2.0,)), Outcome(config={"BLOCK": 1}, reason="fault")
    )
    found = Measurements.read(path)
    cell = found.cell(context().id, "p", CONFIG)
    assert cell is not None
    assert (cell.ms, cell.samples) == (1.0, 4)
    assert found.matrix(context()).points == (POINT,)
    assert {c.reason for c in found.known(context().id, "p").values()} == {None, "fault"}


@pytest.mark.parametrize("cut", [1, 10, 40])
def test_a_torn_last_line_is_dropped_and_cut_off(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "a.jsonl"
    write(
        path, Outcome(config=CONFIG, samples=(1.0,)), Outcome(config={"BLOCK": 1}, samples=(2.0,))
    )
    path.write_bytes(path.read_bytes()[:-cut])
    found = Measurements.read(path)
    assert found.torn
    assert len(found.known(context().id, "p")) == 1
    write(path, Outcome(config={"BLOCK": 1}, samples=(3.0,)))
    again = Measurements.read(path)
    assert not again.torn
    assert len(again.known(context().id, "p")) == 2


def test_every_malformed_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    write(path, Outcome(config=CONFIG, samples=(1.0,)))
    lines = path.read_text().splitlines()
    lines[2:2] = ["{", "[]", '{"result": ["x", "y"], "config": {}, "samples": [1]}', "9" * 9999]
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(FormatError) as caught:
        Measurements.read(path)
    assert [problem.line for problem in caught.value.problems] == [3, 4, 5, 6]


def test_a_context_that_was_edited_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    write(path, Outcome(config=CONFIG, samples=(1.0,)))
    path.write_text(path.read_text().replace("Model 132", "Model 133"))
    with pytest.raises(FormatError, match="hash of its content"):
        Measurements.read(path)


@pytest.mark.parametrize("samples", ["[]", "[0]", "[-1]", "[1e999]", '["x"]', "[NaN]"])
def test_samples_are_positive_numbers(tmp_path: Path, samples: str) -> None:
    path = tmp_path / "a.jsonl"
    write(path, Outcome(config=CONFIG, samples=(1.5,)))
    path.write_text(path.read_text().replace("[1.5]", samples))
    with pytest.raises(FormatError):
        Measurements.read(path)


def test_other_hardware_or_source_is_never_mixed_in(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    other = context(source="sha256:" + "1" * 64)
    write(path, Outcome(config=CONFIG, samples=(1.0,)))
    with Writer(path).open() as writer:
        writer.context(other)
        writer.results(other.id, "p", [Outcome(config=CONFIG, samples=(9.0,))])
    found = Measurements.read(path)
    assert found.newest_first() == [other, context()]
    assert found.foreign(other) == 1
    cell = found.cell(other.id, "p", CONFIG)
    assert cell is not None
    assert cell.ms == 9.0


def test_files_are_joined_by_concatenation(tmp_path: Path) -> None:
    first, second = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    write(first, Outcome(config=CONFIG, samples=(1.0,)))
    write(second, Outcome(config={"BLOCK": 1}, samples=(2.0,)))
    first.write_bytes(first.read_bytes() + second.read_bytes())
    assert len(Measurements.read(first).known(context().id, "p")) == 2


def _try_to_write(path: Path) -> str:
    try:
        write(path)
    except TuningError as error:
        return error.message
    return "written"


def test_what_the_launch_itself_refuses_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    large, small, other = {"BM": 256}, {"BM": 64}, {"BM": 128}
    write(
        path,
        Outcome(config=large, reason="out_of_resources", detail="too large", pruned=True),
        Outcome(config=other, reason="out_of_resources", detail="the compiler's verdict"),
        Outcome(config=small, samples=(1.0,)),
    )
    matrix = Measurements.read(path).matrix(context())
    (point,) = matrix.points
    assert matrix.slowdown(point, matrix.runs(point, [large, small])) == 1.0
    # What the compiler refuses is seen too late to take another.
    assert matrix.runs(point, [other, small]) == other


def test_a_second_writer_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with Writer(path).open(), multiprocessing.get_context("spawn").Pool(1) as pool:
        assert "another process is writing" in pool.apply(_try_to_write, (path,))


def test_a_full_disk_keeps_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    writer = Writer(path)

    class Full:
        def __init__(self, file: object) -> None:
            self.file = file

        def write(self, data: bytes) -> int:
            self.file.write(data[: len(data) // 2])  # type: ignore[attr-defined]
            raise OSError(errno.ENOSPC, "No space left on device")

    write(path, Outcome(config=CONFIG, samples=(1.0,)))

    def until_the_disk_is_full() -> None:
        with writer.open():
            writer._file = Full(writer._file)
            writer.results(context().id, "p", [Outcome(config={"BLOCK": 1}, samples=(2.0,))])

    with pytest.raises(StoreError, match="No space left"):
        until_the_disk_is_full()
    found = Measurements.read(path)
    assert found.torn
    assert len(found.known(context().id, "p")) == 1


@given(st.lists(st.floats(0.1, 10), min_size=2, max_size=9), st.lists(st.floats(1.0, 1e6)))
def test_what_slows_other_samples_down_does_not_move_the_summary(
    samples: list[float], slowed: list[float]
) -> None:
    alone = lowest(samples)
    assert lowest([*samples, *(max(samples) * s for s in slowed)]) == replace(
        alone, samples=len(samples) + len(slowed)
    )
    assert alone.ms == min(samples)
    assert alone.ms + alone.error == pytest.approx(sorted(samples)[1])


def test_a_log_is_summarised_as_when_it_was_written(tmp_path: Path) -> None:
    """Trees were built from medians under the names that methods had before."""
    path = tmp_path / "a.jsonl"
    found = []
    for method in ("cuda-graph", "cuda-graphs", "jax-chain", "jax-chains"):
        where = context(policy={"method": method, "l2": "warm"})
        with Writer(path).open() as writer:
            writer.context(where)
            writer.points([POINT])
            for samples in ((1.0, 5.0), (2.0,)):
                writer.results(where.id, "p", [Outcome(config=CONFIG, samples=samples)])
        found.append(where)
    cells = [Measurements.read(path).cell(where.id, "p", CONFIG) for where in found]
    assert [cell and cell.ms for cell in cells] == [2.0, 1.0] * 2
    assert [cell and cell.error for cell in cells] == [pytest.approx(1.0728, rel=1e-3), 1.0] * 2


def test_the_file_is_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    write(path, Outcome(config=CONFIG, samples=(1.23456789,)))
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [next(iter(row)) for row in rows] == ["context", "point", "result"]
    assert rows[2]["samples"] == [1.23457]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"features": {"N": [1, 2]}}, "feature 'N'"),
        ({"features": {"N": 10**400}}, "feature 'N'"),
        ({"features": {"x": math.inf}}, "feature 'x'"),
        ({"features": {"x": math.nan}}, "feature 'x'"),
        ({"features": {"dt": "a" * 300}}, "feature 'dt'"),
        ({"features": {"dt": "\ud800"}}, "surrogates"),
        ({"weight": 1e308}, "weight"),
        ({"weight": 1e-320}, "weight"),
    ],
)
def test_a_point_that_no_launch_makes_is_refused_with_its_line(
    tmp_path: Path, changes: dict[str, object], said: str
) -> None:
    path = tmp_path / "a.jsonl"
    write(path, Outcome(config=CONFIG, samples=(1.0,)))
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows[1] |= changes
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(FormatError, match=said) as refused:
        Measurements.read(path)
    assert refused.value.problems[0].line == 2


@pytest.mark.parametrize("ms", [1e-320, 1e300])
def test_a_time_that_no_device_takes_is_refused(tmp_path: Path, ms: float) -> None:
    path = tmp_path / "a.jsonl"
    write(path, Outcome(config=CONFIG, samples=(1.0,)))
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows[2]["samples"] = [ms]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(FormatError, match="samples"):
        Measurements.read(path)
