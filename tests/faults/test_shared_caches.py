"""Caches that users and machines share: rights, locks that are never released, and wrong clocks."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import filelock
import pytest

from benchmarks.faultlab.lab import REPO, Clean, Lab
from kernelhub.disk import alone_with
from kernelhub.errors import StoreError
from kernelhub.formats.policy_toml import parse_policy

Laboratory = tuple[Lab, dict[str, Clean]]
As = Callable[..., dict[str, Any]]
GROUP, ANNA, BERT = 60_000, 60_001, 60_002

only_root = pytest.mark.skipif(
    sys.platform == "win32" or os.geteuid() != 0, reason="only root can be two users"
)


@pytest.fixture
def shared(laboratory: Laboratory) -> Iterator[Path]:
    """An empty cache of ANNA's group that both users may write."""
    laboratory[0].fresh("get")
    laboratory[0].hub.clear()
    folder = Path(tempfile.mkdtemp(prefix="kernelhub-shared-"))  # pytest's own is root's alone
    folder.chmod(0o755)
    cache = folder / "cache"
    cache.mkdir()
    os.chown(cache, ANNA, GROUP)
    cache.chmod(0o2775)
    yield cache
    shutil.rmtree(folder)


@pytest.fixture
def load_as(laboratory: Laboratory, shared: Path, tmp_path: Path) -> As:
    """Load the kernel as a user, in a process; gives what came out and how much was asked."""
    lab = laboratory[0]
    (tmp_path / "work").mkdir()

    def load(user: int, umask: int = 0o002, **more: Any) -> dict[str, Any]:
        warm = tmp_path / "warm"
        shutil.rmtree(warm, ignore_errors=True)
        facts = {"user": user, "group": GROUP, "umask": umask, "warm": str(warm)}
        environment = {
            "KERNELHUB_CACHE": str(shared),
            "KERNELHUB_CONFIG": str(shared.parent / "no-config"),
            **more.pop("environment", {}),
        }
        return lab.run("get", environment=environment, **facts, **more)

    return load


def asked(lab: Lab) -> list[str]:
    """What was asked about the kernel so far; a record is made a moment after its answer."""
    time.sleep(0.2)
    return [record.path for record in lab.hub.requests if f"/{REPO}/" in record.path]


@only_root
def test_two_users_of_one_group(laboratory: Laboratory, load_as: As, shared: Path) -> None:
    lab = laboratory[0]
    outcome = load_as(ANNA)
    assert outcome["ok"], outcome
    assert len(asked(lab)) > 1
    lab.hub.clear()
    assert load_as(BERT)["ok"]
    assert asked(lab) == [f"/api/kernels/{REPO}/refs"]  # which commit the version stands at now
    assert not any(path.is_symlink() for path in shared.rglob("*"))
    (damaged,) = shared.rglob("build/torch-cpu/ops.py")
    damaged.write_bytes(b"#" + damaged.read_bytes()[1:-1] + b"!")
    outcome = load_as(BERT)
    assert outcome["ok"], outcome
    assert damaged.stat().st_uid == BERT


@only_root
def test_a_cache_that_another_user_keeps_to_himself(load_as: As, shared: Path) -> None:
    """What is whole there is used; what is not can be loaded once a writable cache is named."""
    assert load_as(ANNA, umask=0o022)["ok"]
    before = {path: path.stat().st_mtime_ns for path in shared.rglob("*")}
    assert load_as(BERT)["ok"]
    assert load_as(BERT, environment={"KERNELHUB_OFFLINE": "1"})["ok"]
    assert {path: path.stat().st_mtime_ns for path in shared.rglob("*")} == before
    (receipt,) = shared.rglob("receipts/*.json")
    receipt.unlink()
    outcome = load_as(BERT)
    assert not outcome["ok"]
    assert outcome["clean"], outcome
    assert "cannot be written" in outcome["error"]
    assert "KERNELHUB_CACHE" in outcome["error"]


@only_root
def test_what_another_user_left_half_is_not_in_the_way(load_as: As, shared: Path) -> None:
    assert load_as(ANNA, umask=0o022)["ok"]
    (repository,) = shared.glob("v1/*/*")
    (place,) = repository.glob("*/build/torch-cpu")
    commit = place.parents[1].name
    left = repository / "incoming" / f"{commit[:16]}-torch-cpu" / "build" / "torch-cpu"
    left.mkdir(parents=True)
    (left / "ops.py.part").write_bytes(b"#")
    for path in (left, *list(left.parents)[:2], left / "ops.py.part"):
        os.chown(path, ANNA, GROUP)
    shutil.rmtree(place)
    for path in (repository, *repository.rglob("*")):
        if path.is_dir() and path not in (left, *left.parents):
            path.chmod(0o2775)
    (repository / "incoming").chmod(0o2775)
    outcome = load_as(BERT)
    assert outcome["ok"], outcome
    assert place.stat().st_uid == BERT


@only_root
@pytest.mark.parametrize(
    ("variable", "named", "file"),
    [
        ("KERNELHUB_CONFIG", "", "policy.toml"),
        ("KERNELHUB_PROJECT", "", "kernelhub.lock"),
        ("KERNELHUB_LOCK", "kernelhub.lock", "kernelhub.lock"),
    ],
)
def test_what_cannot_be_read_is_not_passed_over(
    load_as: As, shared: Path, variable: str, named: str, file: str
) -> None:
    hidden = shared.parent / "hidden"
    hidden.mkdir(mode=0o700)
    outcome = load_as(BERT, environment={variable: str(hidden / named)})
    assert not outcome["ok"]
    assert outcome["error"].startswith(f"StoreError: {hidden / file} cannot be read"), outcome
    assert "make it readable" in outcome["error"]


def test_a_clock_that_was_ahead(laboratory: Laboratory) -> None:
    """Answers and files from the future: the Hub is asked again, and nothing is taken for new."""
    lab = laboratory[0]
    lab.fresh("get")
    assert lab.run("get")["ok"]
    ahead = time.time() + 30 * 24 * 3600
    (remembered,) = lab.home.rglob("remembered.json")
    value = json.loads(remembered.read_bytes())
    value["asked"] = ahead
    remembered.write_text(json.dumps(value))
    for path in lab.home.rglob("*"):
        os.utime(path, (ahead, ahead))
    lab.hub.clear()
    assert lab.run("get")["ok"]
    assert [r.path.rpartition("/")[2] for r in lab.hub.requests] == ["refs"]
    assert json.loads(remembered.read_bytes())["asked"] < ahead
    (damaged,) = lab.home.rglob("build/torch-cpu/ops.py")
    damaged.write_bytes(bytes(512))
    os.utime(damaged, (ahead, ahead))
    assert lab.run("get")["ok"]


@pytest.mark.parametrize("asked_at", ["1e999", "-1e999", "NaN", "1" + "0" * 400, '"x"', "null"])
def test_a_memory_that_makes_no_sense(laboratory: Laboratory, asked_at: str) -> None:
    lab = laboratory[0]
    lab.fresh("get")
    assert lab.run("get")["ok"]
    (remembered,) = lab.home.rglob("remembered.json")
    value = json.loads(remembered.read_bytes()) | {"asked": "HERE"}
    remembered.write_text(json.dumps(value).replace('"HERE"', asked_at))
    outcome = lab.run("get")
    assert outcome["ok"], outcome


def test_locks_that_are_never_released(laboratory: Laboratory) -> None:
    """As on a network file system whose lock service lost a client: the load goes on alone."""
    lab = laboratory[0]
    lab.fresh("get")
    assert lab.run("get")["ok"]
    (repository,) = lab.home.glob("kernelhub/v1/*/*")
    (place,) = repository.glob("*/build/torch-cpu")
    shutil.rmtree(place)
    names = [path.name for path in (repository / "locks").iterdir()]
    locks = [filelock.FileLock(repository / "locks" / name) for name in names]
    for lock in locks:
        lock.acquire()
    began = time.monotonic()
    outcome = lab.run("get", environment={"KERNELHUB_TIMEOUT": "4"})
    for lock in locks:
        lock.release()
    assert outcome["ok"], outcome
    assert time.monotonic() - began < 25


def test_a_policy_that_somebody_keeps_is_left_in_time(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    with (
        alone_with(path),
        pytest.raises(StoreError, match="another process"),
        alone_with(path, wait=0.2),
    ):
        pass
    with alone_with(path, wait=0.2):
        pass


def test_many_who_trust_at_once(tmp_path: Path) -> None:
    """None of their entries is lost."""
    path = os.pathsep.join(entry for entry in sys.path if entry)
    code = (
        "import sys; from kernelhub.cli import group, run;"
        "sys.exit(max(run(group, ['trust', 'add', f'org{sys.argv[1]}-{n}']) for n in range(5)))"
    )
    environment = {**os.environ, "PYTHONPATH": path, "KERNELHUB_CONFIG": str(tmp_path)}
    processes = [
        subprocess.Popen([sys.executable, "-c", code, str(n)], env=environment,
                         stdout=subprocess.DEVNULL)
        for n in range(6)
    ]  # fmt: skip
    assert [process.wait(60) for process in processes] == [0] * 6
    policy = parse_policy((tmp_path / "policy.toml").read_bytes())
    assert policy.allowed == {f"org{who}-{n}" for who in range(6) for n in range(5)}
