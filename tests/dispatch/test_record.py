"""Launches as data, and recording them."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kernelhub
from kernelhub.dispatch.launch import (
    Launch,
    OpaqueFact,
    ScalarFact,
    TensorFact,
    TupleFact,
    describe,
)
from kernelhub.dispatch.record import read_record, start_from_settings
from kernelhub.errors import FormatError, StoreError
from kernelhub.settings import scope

sizes = st.lists(st.integers(0, 2**40), max_size=4).map(tuple)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
facts = st.recursive(
    st.builds(ScalarFact, value=scalars, constexpr=st.booleans())
    | st.builds(
        TensorFact, dtype=st.text(max_size=5), shape=sizes, strides=sizes, aligned=st.booleans(),
        device=st.just("cuda"), block=st.none() | sizes,
    )
    | st.builds(OpaqueFact, type=st.text(max_size=5), text=st.text(max_size=5)),
    lambda items: st.builds(TupleFact, items=st.lists(items, max_size=3).map(tuple)),
    max_leaves=5,
)  # fmt: skip
launches = st.builds(
    Launch,
    kernel=st.just("ops.scale"),
    arguments=st.lists(st.tuples(st.text(max_size=5), facts), max_size=4).map(tuple),
)


@given(launches)
def test_launches_survive_json(launch: Launch) -> None:
    again = Launch.from_json(json.loads(json.dumps(launch.to_json())))
    assert again == launch
    assert hash(again) == hash(launch)
    assert again.key == launch.key


def test_one_and_true_are_different_launches() -> None:
    keys = {
        Launch(kernel="k", arguments=(("n", ScalarFact(value=value)),)).key
        for value in (1, 1.0, True, "1", None, 0.0, -0.0, math.inf)
    }
    assert len(keys) == 8


@pytest.mark.parametrize(
    "data",
    [{}, {"kernel": 1, "arguments": []}, {"kernel": "k", "arguments": [["n"]]},
     {"kernel": "k", "arguments": [["n", {"kind": "scalar", "type": "int", "value": 1.5}]]},
     {"kernel": "k", "arguments": [["n", {"kind": "scalar", "type": "list", "value": []}]]},
     {"kernel": "k", "arguments": [["n", {"kind": "other"}]]},
     {"kernel": "k", "arguments": [["n", {"kind": "tensor", "dtype": "f", "shape": [1.5]}]]}],
)  # fmt: skip
def test_what_is_no_launch_is_refused(data) -> None:
    with pytest.raises(ValueError, match="not a launch"):
        Launch.from_json(data)


def test_frameworks_agree_on_facts() -> None:
    torch = pytest.importorskip("torch")
    view = torch.empty(8, 4, dtype=torch.bfloat16)[1:, ::2]
    assert describe(view) == TensorFact(
        dtype="bfloat16", shape=(7, 2), strides=(4, 2), aligned=False, device="cpu"
    )
    numpy = pytest.importorskip("numpy")
    assert describe(numpy.zeros(3, numpy.float16)).dtype == "float16"
    assert describe((1, None)) == TupleFact(items=(ScalarFact(value=1), ScalarFact(value=None)))
    assert describe(len) == OpaqueFact(type="builtin_function_or_method", text="len")


def test_distinct_launches_with_counts(package, tmp_path) -> None:
    torch = pytest.importorskip("torch")
    scan, path = package.functions.scan, tmp_path / "launches.jsonl"
    with kernelhub.record(path):
        for n in (5, 5, 5, 6):
            scan(torch.ones(3), n)
        scan(torch.ones(4), 5)
    scan(torch.ones(3), 5)
    with kernelhub.record(path):
        scan(torch.ones(3), 5)
    found = read_record(path)
    assert [count for _, count in found] == [4, 1, 1]
    assert found[0][0].argument("n") == ScalarFact(value=5)
    assert b"1.0" not in path.read_bytes()  # no contents


def test_threads_and_concurrent_recorders(package, tmp_path) -> None:
    torch = pytest.importorskip("torch")
    path, scan = tmp_path / "launches.jsonl", package.functions.scan

    def work() -> None:
        for n in range(50):
            scan(torch.ones(3), n % 5)

    with kernelhub.record(path), kernelhub.record(tmp_path / "other.jsonl"):
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for name in ("launches.jsonl", "other.jsonl"):
        assert [count for _, count in read_record(tmp_path / name)] == [40] * 5


def test_a_path_that_cannot_be_written(tmp_path) -> None:
    with pytest.raises(StoreError, match="cannot record"), kernelhub.record(tmp_path / "no" / "f"):
        pytest.fail("recorded")
    with pytest.raises(StoreError, match="cannot read"):
        read_record(tmp_path / "nothing")


def test_a_disk_that_fails_later_does_not_stop_the_application(package, tmp_path, caplog) -> None:
    torch = pytest.importorskip("torch")
    path, scan = tmp_path / "folder" / "r.jsonl", package.functions.scan
    path.parent.mkdir()
    with kernelhub.record(path):
        scan(torch.ones(3), 1)
        path.unlink()
        path.parent.rename(tmp_path / "gone")
        for n in (2, 3, 2):
            assert scan(torch.ones(3), n) == ("fused", 128)
        (tmp_path / "gone").rename(path.parent)
    assert sorted(count for _, count in read_record(path)) == [1, 2]
    assert sum("counting goes on" in message for message in caplog.messages) == 1


def test_bad_lines_are_named_and_torn_ones_passed_over(tmp_path) -> None:
    path = tmp_path / "r.jsonl"
    good = json.dumps({"v": 1, "count": 2, "kernel": "k", "arguments": []})
    path.write_text(f'{good}\n{{"v":1,"cou\n{good}\n')
    assert [count for _, count in read_record(path)] == [4]
    path.write_text(f'{good}\n{{"v":9}}\n[]\n{good.replace("2", "-2")}\n')
    with pytest.raises(FormatError) as caught:
        read_record(path)
    assert [problem.line for problem in caught.value.problems] == [2, 3, 4]


PROGRAM = textwrap.dedent("""
    import os, sys, time
    from kernelhub import tunable
    from kernelhub.dispatch.record import start_from_settings

    @tunable(configs=[{"block": 1}])
    def work(n, *, block):
        return n

    start_from_settings()
    start_from_settings()
    for n in range(3):
        work(n)
    print("ready", flush=True)
    time.sleep(float(sys.argv[1]))
""")


def test_the_environment_asks_and_processes_share_a_file(tmp_path) -> None:
    path = tmp_path / "shared.jsonl"
    env = {**os.environ, "KERNELHUB_RECORD": str(path)}
    command = [sys.executable, "-c", PROGRAM]
    children = [
        subprocess.Popen([*command, seconds], env=env, stdout=subprocess.PIPE, text=True)
        for seconds in ("0", "0", "30")
    ]
    for child in children:
        assert child.stdout.readline() == "ready\n"
    children[-1].send_signal(signal.SIGKILL)
    for child in children:
        child.wait()
        child.stdout.close()
    counts = [count for _, count in read_record(path)]
    assert counts == [3, 3, 3]  # new launches are on disk at once, so the killed one lost nothing


def test_nothing_is_recorded_unasked(tmp_path: Path) -> None:
    with scope(record=None):
        start_from_settings()
    assert list(tmp_path.glob("*.jsonl")) == []
