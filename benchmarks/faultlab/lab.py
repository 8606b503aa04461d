"""A Hub with faults, a client beside it, and the judgement of what came out."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel_builder.hub import Hub
from kernel_builder.pack import build
from kernel_builder.project import Project
from kernel_builder.publish import Options, publish
from kernelhub.serve.testing import RunningHub, running_hub

from .cases import FILES, WRONG, Case

REPO = "demo/k"
OTHER = "demo/other"
LARGE = "demo/large"
LIMIT = 40.0
SHORT = {"KERNELHUB_TIMEOUT": "5"}  # of what is disturbed: some faults end by the deadline only
LIMIT_OF_PUBLISHING = 150.0  # the library underneath repeats requests too, with waits of its own
DATA = hashlib.sha256(FILES["data.bin"]).hexdigest()
BUILD_TOML = """\
[general]
name = "fault-lab"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cpu"]

[torch-noarch]
pyext = ["py", "bin"]
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What became of a case: "survived", "refused" or "lost", and why."""

    case: Case
    verdict: str
    why: str
    seconds: float
    injected: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Clean:
    """An operation that nothing disturbs: requests, events of the process, and seconds."""

    requests: int
    events: int
    seconds: float


class Lab:
    """One client and one Hub.

    Args:
        client: "kernelhub" or "kernels".
        folder: everything is below it.
    """

    def __init__(self, client: str, folder: Path, hub: RunningHub, project: Path) -> None:
        self.client = client
        self.home = folder / f"home-{client}"
        self.work = folder / f"work-{client}"
        self.marker = folder / f"marker-{client}"
        self.hub = hub
        self._project = project
        self._published = 0
        self.repo = REPO
        self._lock: bytes | None = None
        self._process = self._start()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(300)  # what it forked may still be ending on a busy machine
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _start(self) -> subprocess.Popen[str]:
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "KERNEL"))}
        environment |= {
            "HF_ENDPOINT": self.hub.url,
            "HF_HOME": str(self.home),
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "HF_HUB_DOWNLOAD_TIMEOUT": "2",
            "HF_HUB_ETAG_TIMEOUT": "2",
            "KERNELHUB_TIMEOUT": "30",
            "KERNELHUB_CONFIG": str(self.home / "config"),
            "FAULTLAB_MARKER": str(self.marker),
            "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry),
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.faultlab.client", self.client],
            cwd=Path(__file__).parents[2],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert process.stdout is not None
        if process.stdout.readline().strip() != '"ready"':
            raise RuntimeError(f"the client {self.client} does not start")
        return process

    def clean(self, operation: str) -> Clean:
        """Do it undisturbed."""
        self.fresh(operation)
        self.hub.clear()
        outcome = self.run(operation)
        if not outcome["ok"]:
            raise RuntimeError(f"{operation} fails undisturbed: {outcome}")
        if operation == "lock":
            self._lock = self._lock_path.read_bytes()
        asked = len(self.hub.requests)
        return Clean(requests=asked, events=outcome["events"], seconds=outcome["seconds"])

    def stored(self) -> list[Path]:
        """The files that a load leaves on the disk, in a fixed order."""
        self.fresh("get")
        if not (outcome := self.run("get"))["ok"]:
            raise RuntimeError(f"get fails undisturbed, is this machine too busy?: {outcome}")
        found = {path.resolve() for path in self.home.rglob("*") if path.is_file()}
        return sorted(path for path in found if path.suffix != ".lock")

    def try_case(self, case: Case, clean: Clean) -> Result:
        """Try a case from a cold start, then do the same undisturbed, and judge."""
        began = time.monotonic()
        self.fresh(case.operation)
        if case.kind == "request":
            verdict, why, injected = self._request(case)
        elif case.kind == "death":
            verdict, why, injected = self._death(case, clean)
        else:
            verdict, why, injected = self._disk(case)
        if self.marker.exists():
            verdict, why = "lost", f"wrong bytes were run; {why}"
            self.marker.unlink()
        seconds = time.monotonic() - began
        return Result(case=case, verdict=verdict, why=why, seconds=seconds, injected=injected)

    def _request(self, case: Case) -> tuple[str, str, int]:
        self.hub.faults.replace([case.fault()])
        outcome = self.run(case.operation, environment=SHORT)
        injected = len(self.hub.faults.injected)
        self.hub.faults.replace([])
        return (*self._judge(case, outcome), injected)

    def _judge(self, case: Case, outcome: dict[str, Any]) -> tuple[str, str]:
        """A refusal has to be one of the client's own, and what follows has to work."""
        if "signal" in outcome:
            return "lost", f"went on for more than {outcome['seconds']:.0f} s"
        if not (outcome["ok"] or outcome["clean"]):
            return "lost", f"{outcome['error']}\n{outcome.get('trace', '')}"
        if fault := self._afterwards(case.operation):
            return "lost", f"{outcome.get('error', 'it worked')}; afterwards {fault}"
        return ("survived", "") if outcome["ok"] else ("refused", outcome["error"])

    def _afterwards(self, operation: str) -> str:
        """What is wrong with the next try, undisturbed; empty if nothing is."""
        written = self._lock_path.read_bytes() if self._lock_path.exists() else None
        if operation == "lock" and written not in (None, self._lock):
            return "the lock holds something else"
        if operation == "publish":
            seen = self.run("get")
            if not (seen["ok"] or seen["clean"]):
                return f"readers see {seen}"
        again = self.run(operation)
        if not again["ok"]:
            return f"the next {operation} fails: {again}"
        if operation == "lock" and self._lock_path.read_bytes() != self._lock:
            return "the next lock is another"
        if operation in ("sync", "publish"):
            offline = {"KERNELHUB_OFFLINE": "1"} if operation == "sync" else {}
            loaded = self.run("get", environment=offline)
            if not loaded["ok"]:
                return f"the load after it fails: {loaded}"
        return ""

    def _death(self, case: Case, clean: Clean) -> tuple[str, str, int]:
        """Kill one of two that do the same; the other has to succeed, and so has a third."""
        when: dict[str, Any] = {"die_after": case.at * clean.seconds * 1.2}
        if case.name == "event":
            when = {"die_at": 1 + int(case.at * clean.events)}
        orders = [self._facts(case.operation, **when)]
        if case.operation in ("get", "sync"):
            orders.append(self._facts(case.operation))
        killed, *others = self._send(orders)
        if not (killed["ok"] or killed.get("clean") or "signal" in killed):
            return "lost", f"{killed['error']}\n{killed.get('trace', '')}", 1
        for other in others:
            if not other["ok"]:
                return "lost", f"the other process: {other}", 1
        if fault := self._afterwards(case.operation):
            return "lost", f"after a death at {when}: {fault}", 1
        return "survived", "", int("signal" in killed)

    def _disk(self, case: Case) -> tuple[str, str, int]:
        path = self.stored()[int(case.at)]
        _change(path, case.name)
        outcome = self.run("get")
        if "signal" in outcome:
            return "lost", f"{path.name} {case.name}: went on for more than {LIMIT:g} s", 1
        if not (outcome["ok"] or outcome["clean"]):
            return "lost", f"{path.name} {case.name}: {outcome['error']}", 1
        again = self.run("get")
        if not again["ok"]:
            return "lost", f"{path.name} {case.name}: the next load fails too: {again}", 1
        return ("survived" if outcome["ok"] else "refused"), path.name, 1

    def fresh(self, operation: str) -> None:
        """An empty cache, and a project of its own."""
        self.hub.faults.replace([])
        for folder in (self.home, self.work):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
        self.repo = REPO
        if operation == "publish":
            self._published += 1
            self.repo = f"demo/p{self._published}"
        if operation in ("lock", "sync"):
            (self.work / "kernel-requirements.txt").write_text(f"{REPO}==1\n")
        if operation == "sync":
            if self._lock is None:
                raise RuntimeError("lock before sync")
            self._lock_path.write_bytes(self._lock)

    @property
    def _lock_path(self) -> Path:
        return self.work / "kernelhub.lock"

    def run(self, operation: str, **more: Any) -> dict[str, Any]:
        """Do one thing in a child of the client; `more` goes into the order."""
        (outcome,) = self._send([self._facts(operation, **more)])
        return outcome

    def _facts(self, operation: str, **more: Any) -> dict[str, Any]:
        return {
            "operation": operation,
            "folder": str(self.work),
            "repo_id": self.repo,
            "project": str(self._project),
            "data": DATA,
            "limit": LIMIT_OF_PUBLISHING if operation == "publish" else LIMIT,
            "other": OTHER,
            **more,
        }

    def together(self, orders: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Do several things at the same time, each in a child; `orders` are what `run` takes."""
        return self._send([self._facts(order.pop("operation"), **order) for order in orders])

    def _send(self, orders: list[dict[str, Any]]) -> list[dict[str, Any]]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(orders) + "\n")
        self._process.stdin.flush()
        return list(json.loads(self._process.stdout.readline()))


def _change(path: Path, how: str) -> None:
    """Change a stored file as a bad disk or a careless program does; its times are kept."""
    before = path.stat()
    data = path.read_bytes()
    path.unlink()
    if how == "removed":
        return
    changed = {
        "flipped": bytes([data[0] ^ 0x55]) + data[1:] if data else b"v",
        "cut": data[: len(data) // 2],
        "zeroed": bytes(len(data)),
        "grown": data + b"\n" + WRONG,
    }[how]
    path.write_bytes(changed)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@contextmanager
def laboratory(folder: Path, clients: tuple[str, ...]) -> Iterator[dict[str, Lab]]:
    """A Hub with some kernels, a project to publish, and these clients."""
    parts = {f"part{n}.bin": os.urandom(5_000_000 // 17) for n in range(17)}
    projects = {
        REPO: _project(folder / "project", {}),
        OTHER: _project(folder / "other", {"other.py": b"X = 1\n"}),
        LARGE: _project(folder / "large", parts),
    }
    with running_hub(folder / "hub", trusted=["demo"]) as hub, contextlib.ExitStack() as stack:
        for repo_id, project in projects.items():
            publish(Project.open(project), Hub(hub.url), Options(repo_id=repo_id))
        labs = {}
        for name in clients:
            labs[name] = Lab(name, folder, hub, projects[REPO])
            stack.callback(labs[name].close)
        yield labs


def _project(root: Path, more: Mapping[str, bytes]) -> Path:
    """A built project of `FILES` and more."""
    package = root / "torch-ext" / "fault_lab"
    package.mkdir(parents=True)
    (root / "build.toml").write_text(BUILD_TOML)
    for name, data in {**FILES, **more}.items():
        (package / name).write_bytes(data)
    build(Project.open(root))
    return root
