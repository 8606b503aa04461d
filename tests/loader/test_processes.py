"""Processes of one node: they share one copy, one download, and what the Hub said."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import filelock
import published
import pytest

from kernelhub import get_kernel, settings
from kernelhub.serve.faults import Fault
from kernelhub.serve.testing import RunningHub
from kernelhub.settings import scope
from kernelhub.store import Store

Publish = Callable[..., str]
TRUST = {"trust_remote_code": True}

LOAD = """
import sys
from kernelhub import get_kernel
module = get_kernel(sys.argv[1], trust_remote_code=True)
print(module.answer(), module.__file__)
"""


TOGETHER = """
import os, sys, time
print("ready", flush=True)
while not os.path.exists(sys.argv[2]):
    time.sleep(0.01)
"""


def start(requirement: str, code: str = LOAD, *more: str) -> subprocess.Popen[str]:
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return subprocess.Popen(
        [sys.executable, "-c", code, requirement, *more],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=100)
    assert process.returncode == 0, err
    return out


def kernel_files() -> dict[str, bytes]:
    modules = {f"m{n}.py": b"N = %d\n" % n for n in range(6)}
    return published.variant({"__init__.py": published.PLAIN, **modules})


def test_sixteen_at_once_on_an_empty_cache(
    hub: RunningHub, publish: Publish, tmp_path: Path
) -> None:
    """All of them exist before the first one asks: else a late one rightly asks again."""
    publish("demo/k", kernel_files())
    go = tmp_path / "go"
    processes = [start("demo/k==1", TOGETHER + LOAD, str(go)) for _ in range(16)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    go.touch()
    outputs = {finish(process) for process in processes}
    assert len(outputs) == 1
    counts = Counter(published.asked(hub))
    assert max(count for path, count in counts.items() if "/resolve/" in path) == 1
    assert sum(counts.values()) == 10, counts  # the requests of one process


def test_threads_of_one_process_on_an_empty_cache(hub: RunningHub, publish: Publish) -> None:
    publish("demo/k", kernel_files())
    with ThreadPoolExecutor(8) as pool:
        load = functools.partial(get_kernel, version=1, **TRUST)
        assert len(set(map(id, pool.map(load, ["demo/k"] * 8)))) == 1
    counts = Counter(path for path in published.asked(hub) if "/resolve/" in path)
    assert set(counts.values()) == {1}


def test_a_later_process_asks_once_or_not_at_all(hub: RunningHub, publish: Publish) -> None:
    commit = publish("demo/k", kernel_files())
    finish(start("demo/k==1"))
    hub.clear()
    finish(start("demo/k==1"))
    assert published.asked(hub) == ["/api/kernels/demo/k/refs"]
    hub.clear()
    unneeded = {"filelock", "huggingface_hub", "pydantic", "torch", "triton"}
    code = f"{LOAD}assert not {unneeded} & set(sys.modules)\n"
    finish(start(f"demo/k@{commit}", code))
    assert published.asked(hub) == []


def test_a_process_sees_what_was_published_before_it_started(
    hub: RunningHub, publish: Publish
) -> None:
    publish("demo/k", published.variant())
    assert finish(start("demo/k==1")).startswith("42 ")
    publish("demo/k", published.variant({"__init__.py": b"def answer(): return 'new'\n"}))
    assert finish(start("demo/k==1")).startswith("new ")


@pytest.mark.usefixtures("cut_answers")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_what_a_killed_process_left_is_continued(
    hub: RunningHub, publish: Publish, how: signal.Signals
) -> None:
    body = os.urandom(400_000)
    files = published.variant({"__init__.py": published.PLAIN, "data.bin": body})
    publish("demo/k", files, lfs=["build/torch-cpu/data.bin"])
    slow = Fault(effect="drip", path=r"data\.bin", piece=20_000, seconds=0.1)
    hub.faults.replace([slow])
    process = start("demo/k==1")
    cache = settings.current().cache
    _until(lambda: any(p.stat().st_size > 50_000 for p in cache.rglob("data.bin.part")))
    process.send_signal(how)
    process.communicate(timeout=30)
    assert process.returncode in (-how, 130, 1)
    hub.faults.replace([])
    published.asked(hub)
    hub.clear()
    module = get_kernel("demo/k", version=1, **TRUST)
    assert (Path(module.__file__).parent / "data.bin").read_bytes() == body
    published.asked(hub)
    (record,) = [r for r in hub.requests if r.path.endswith("data.bin")]
    assert record.range is not None
    assert int(record.range.removeprefix("bytes=").rstrip("-")) > 50_000


def _until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end, "this did not happen in time"
        time.sleep(0.02)


def test_a_holder_that_hangs_does_not_stop_the_others(hub: RunningHub, publish: Publish) -> None:
    commit = publish("demo/k", published.variant({"__init__.py": b"X = 'alone'\n"}))
    store = settings.current().cache
    with scope(timeout=2.0):
        get_kernel("demo/k", version=1, **TRUST)
        repository = next(store.glob("v1/*/*"))
        for path in repository.glob(f"{commit}/receipts/*"):
            path.unlink()
        with filelock.FileLock(repository / "locks" / f"{commit}.lock"):
            began = time.monotonic()
            assert get_kernel(f"demo/k@{commit}", **TRUST).X == "alone"
            assert 0.9 < time.monotonic() - began < 10
    assert not list((repository / "incoming").iterdir())


def test_who_led_one_step_leads_the_next(tmp_path: Path) -> None:
    """Who leads has a connection to the Hub. Those who follow do not take its next lock first."""
    leader, follower = (Store(tmp_path, "http://hub").repository("demo/k") for _ in range(2))
    done: set[str] = set()
    looks: Counter[str] = Counter()

    def is_done(step: str) -> bool:
        looks[step] += 1
        return step in done

    def follow(step: str) -> bool:
        with follower.lock(step, 60.0, until=lambda: is_done(step)) as held:
            return held

    with ThreadPoolExecutor(1) as pool:
        with leader.lock("first", 60.0):
            waits = pool.submit(follow, "first")
            _until(lambda: looks["first"] > 2)
            done.add("first")
            assert not waits.result()
        waits = pool.submit(follow, "second")
        _until(lambda: looks["second"] > 2)  # the leader is late, and the lock is free
        with leader.lock("second", 60.0) as held:
            assert held
            done.add("second")
            assert not waits.result()
    assert follow("third"), "where nobody leads, who followed takes the lock itself"


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_does_not_grow_with_a_file(hub: RunningHub, publish: Publish) -> None:
    """The peak of a process that loads 48 MB is within 16 MB of one that loads nothing."""
    code = LOAD + "print(next(l for l in open('/proc/self/status') if l.startswith('VmHWM')))"
    peaks = []
    for name, size in (("small", 10), ("large", 48 << 20)):
        files = published.variant({"__init__.py": published.PLAIN, "data.bin": b"\1" * size})
        publish(f"demo/{name}", files, lfs=["build/torch-cpu/data.bin"])
        peaks.append(int(finish(start(f"demo/{name}==1", code)).split()[-2]))
    assert peaks[1] - peaks[0] < 16 << 10
