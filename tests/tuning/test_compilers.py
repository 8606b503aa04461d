"""Compiling ahead in processes of their own: same cache keys, and no crash goes further."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from compiled_samples import write

from kernel_builder.tuning.runner import Found, Task
from kernel_builder.tuning.runners import forks
from kernel_builder.tuning.runners.compilers import Compilers
from kernel_builder.tuning.runners.process import ProcessRunner
from kernel_builder.tuning.site import Site

pytest.importorskip("triton")
TASK = Task(kernel="trouble", case="run/n=64", point="p", features={"M": 64})


def site_of(folder: Path) -> Site:
    write(folder)
    return Site(paths=(str(folder),), package="compiled", workloads=str(folder / "workloads.py"))


def found(**recipe: Any) -> Found:
    recipe = recipe or {
        "kernel": "trouble",
        "arguments": [
            ["x", {"kind": "tensor", "dtype": "float16", "shape": [64], "strides": [1],
                   "aligned": True, "device": "cuda"}],
            ["n", {"kind": "scalar", "type": "int", "value": 64}],
        ],
    }  # fmt: skip
    return Found(
        kernel="trouble", source="", point="p", case=TASK.case, features={"M": 64}, weight=1.0,
        held_out=False, recipe=recipe,
    )  # fmt: skip


def block(size: int) -> dict[str, Any]:
    return {"BLOCK": size, "num_warps": 4, "num_stages": 3, "num_ctas": 1}


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Variables of processes that compile into a cache of their own."""
    cache = tmp_path_factory.mktemp("cache")
    return {**os.environ, "TRITON_CACHE_DIR": str(cache), "TRITON_DEFAULT_FP_FUSION": "1"}


def test_the_measuring_process_finds_what_was_compiled_and_crashes_are_outcomes(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    """Unaligned tensors, ones, dtypes, heuristics, descriptors, hooks, launch options."""
    write(tmp_path)
    script = Path(__file__).with_name("compiled_samples.py")
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)],
        env=environment, capture_output=True, text=True, check=False, timeout=110,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    troubles = {block: (why, text) for name, block, why, text in said["outcomes"] if why}
    assert {block: why for block, (why, _) in troubles.items()} == {
        65: "compile_error",
        128: "compile_error",
        256: "timeout",
    }
    assert "power of 2" in troubles[65][1]
    assert "the compiler died (signal 6)" in troubles[128][1]
    assert said["good"] == len(said["outcomes"]) - 3
    assert said["counts"]["compiled_here"] == 0
    assert said["counts"]["found_compiled"] > 5


def test_a_runner_does_not_check_what_the_compilers_refuse(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    compilers = Compilers(site_of(tmp_path), 1, environment=environment)
    compilers.start()
    compilers.learn(found())
    runner = ProcessRunner("model", {}, compilers=compilers)
    assert runner.station.device.arch == "sm_90"
    runner.prepare(TASK, [block(64)])
    outcomes = list(runner.check(TASK, [block(128), block(64), block(65)], block(65)))
    assert {o.config["BLOCK"]: o.reason for o in outcomes} == {
        64: None,
        65: "compile_error",
        128: "compile_error",
    }
    # A package that asks for the GPU on import would leave what does not survive a fork.
    (seen,) = tmp_path.rglob("*.gpus")
    assert seen.read_text() == "\n"
    assert [len(o.samples) for o in runner.measure(TASK, [block(64)], 3)] == [3]
    effort = runner.effort()
    runner.close()
    assert effort["compile"] > 0
    assert effort["restarts"] == 0
    again = compilers.submit(TASK, block(256), "sm_90")
    assert again.result(timeout=5) is None  # closed: the measuring process sees for itself


@pytest.mark.parametrize("fault", ["import", "recipe"])
def test_what_cannot_be_compiled_elsewhere_is_left_to_the_measuring_process(
    tmp_path: Path, environment: dict[str, str], fault: str
) -> None:
    site = site_of(tmp_path)
    if fault == "import":
        (tmp_path / "compiled.py").write_text("raise RuntimeError('no such machine')")
    compilers = Compilers(site, 1, environment=environment)
    compilers.start()
    if fault == "import":
        compilers.learn(found())
    job = compilers.submit(TASK, block(64), "sm_90")
    assert job.result(timeout=60) is None
    compilers.close()


def test_an_interrupted_runner_waits_for_nobody(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    compilers = Compilers(site_of(tmp_path), 1, environment=environment)
    compilers.start()
    compilers.learn(found())
    runner = ProcessRunner("model", {}, compilers=compilers)
    _ = runner.station
    runner.interrupt()
    start = time.monotonic()
    assert list(runner.check(TASK, [block(256)])) == []
    assert time.monotonic() - start < 5
    runner.close()


def test_what_is_asked_for_last_or_again_goes_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sent: list[int] = []

    class Silent:
        tail = ()

        def __init__(self, *_: object) -> None: ...

        def try_send(self, request: dict[str, Any]) -> None:
            if "job" in request:
                sent.append(request["config"]["BLOCK"])

        def answer(self, _: object) -> dict[str, Any] | None:
            if not sent:
                return {"ready": True}
            time.sleep(0.05)
            return {"job": len(sent) - 1, "outcome": None} if len(sent) < 3 else None

        def kill(self) -> None: ...

    monkeypatch.setattr("kernel_builder.tuning.runners.compilers.Child", Silent)
    compilers = Compilers(site_of(tmp_path), 1)
    compilers.learn(found())
    compilers._child = Silent()  # type: ignore[assignment]
    for size in (1, 2, 3, 1):
        compilers.submit(TASK, block(size), "sm_90")
    compilers._listen(compilers._child)  # type: ignore[arg-type]
    assert sent == [1, 3, 2]


def test_a_child_that_is_killed_is_no_verdict() -> None:
    """The system kills for want of memory: that says nothing about a configuration."""
    child = forks._Child(pid=1, requests=0, errors=io.BytesIO(b"abc"), job={"config": {}})
    assert forks._verdict(child, 9, 1.0) is None
    assert forks._verdict(child, 1 << 8, 1.0) is None
    assert forks._verdict(child, 11, 1.0)["detail"] == "the compiler died (signal 11): abc"
