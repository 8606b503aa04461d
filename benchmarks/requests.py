"""What loading costs: HTTP requests, wall time and memory, against HF's client on the same Hub.

    python -m benchmarks.requests [--json] [--rounds 5] [--processes 16] [--megabytes 200]

Both clients run in fresh processes that have torch imported before the clock starts, on caches of
their own, in turns, against one embedded Hub that counts what it is asked.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

os.environ["HF_HUB_DISABLE_XET"] = "1"  # the embedded Hub takes large files by LFS

from huggingface_hub import CommitOperationAdd, HfApi

from benchmarks._report import Figure, Report, arguments, emit
from kernelhub.formats.digest import Digest, hash_bytes
from kernelhub.formats.metadata import parse_metadata, render_metadata
from kernelhub.serve.testing import RunningHub, running_hub

OURS, PEER = "kernelhub", "kernels"
SMALL, LARGE = "bench/small", "bench/large"

CHILD = """
import json, sys, time
import torch
client, repo_id, pin = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
began = time.perf_counter()
module = __import__(client).get_kernel(repo_id, trust_remote_code=True, **pin)
seconds = time.perf_counter() - began
assert module.answer() == 42
status = open("/proc/self/status").read() if sys.platform == "linux" else "VmHWM: 0 kB"
peak = next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))
print(json.dumps({"seconds": seconds, "peak": int(peak) * 1024}))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One load in a process of its own. `peak` is resident memory in bytes."""

    seconds: float
    peak: int
    requests: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """One Hub, and a folder for caches."""

    hub: RunningHub
    folder: Path

    def cache(self) -> Path:
        return Path(tempfile.mkdtemp(dir=self.folder))

    def start(self, client: str, repo: str, pin: Mapping[str, object], cache: Path) -> _Process:
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "KERNEL"))}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its byte code
        environment |= {
            "HF_ENDPOINT": self.hub.url,
            "HF_HOME": str(cache),
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry),
        }
        command = [sys.executable, "-c", CHILD, client, repo, json.dumps(pin)]
        return subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def load(self, client: str, repo: str, pin: Mapping[str, object], cache: Path) -> Run:
        self.asked()
        self.hub.clear()
        facts = finish(self.start(client, repo, pin, cache))
        return Run(requests=len(self.asked()), **facts)

    def asked(self) -> list[str]:
        """Paths asked so far; a record is made a moment after its answer was read."""
        count = -1
        while count != len(self.hub.requests):
            count = len(self.hub.requests)
            time.sleep(0.05)
        return [record.path for record in self.hub.requests]


_Process = subprocess.Popen[str]


def finish(process: _Process) -> dict[str, float]:
    out, err = process.communicate(timeout=300)
    if process.returncode:
        raise SystemExit(f"a load failed:\n{err}")
    return json.loads(out.splitlines()[-1])


def publish(api: HfApi, repo_id: str, extra: Mapping[str, bytes]) -> str:
    """A kernel of eight files with metadata.json, or of more with `extra`; gives its commit."""
    files = {f"part{n}.py": b"VALUE = %d\n" % n for n in range(6)}
    files["__init__.py"] = b"from .part0 import VALUE\n\n\ndef answer():\n    return 42 + VALUE\n"
    files |= extra
    value = {
        "name": repo_id.partition("/")[2],
        "id": "_bench_cpu_0000000",
        "version": 1,
        "license": "Apache-2.0",
        "python-depends": [],
        "backend": {"type": "cpu"},
    }
    digest = Digest(algorithm="sha256", files={p: hash_bytes(d) for p, d in files.items()})
    metadata = parse_metadata(json.dumps(value).encode())
    rendered = render_metadata(replace(metadata, digest=digest))
    api.create_repo(repo_id, repo_type="kernel")
    api.create_branch(repo_id, repo_type="kernel", branch="v1")
    operations = [
        CommitOperationAdd(f"build/torch-cpu/{path}", data)
        for path, data in {**files, "metadata.json": rendered}.items()
    ]
    done = api.create_commit(
        repo_id, operations, commit_message="Build", repo_type="kernel", revision="v1"
    )
    return str(done.oid)


def single(bench: Bench, commit: str, rounds: int) -> list[Figure]:
    """Cold, again by version, again by commit: requests, and the median of the seconds."""
    runs: dict[tuple[str, str], list[Run]] = {}
    for client in (OURS, PEER):
        bench.load(client, SMALL, {"version": 1}, bench.cache())  # byte code, the disk's cache
    for _ in range(rounds):
        for client in (OURS, PEER):
            cache = bench.cache()
            for step, pin in (
                ("cold", {"version": 1}),
                ("again", {"version": 1}),
                ("pinned", {"revision": commit}),
            ):
                runs.setdefault((step, client), []).append(bench.load(client, SMALL, pin, cache))
    figures: list[Figure] = []
    for step, most in (("cold", None), ("again", 1), ("pinned", 0)):
        ours, peer = runs[step, OURS], runs[step, PEER]
        theirs = max(run.requests for run in peer)
        figures += [
            Figure(
                name=f"{step}-requests",
                value=max(run.requests for run in ours),
                unit="requests",
                target=theirs // 2 if most is None else most,
                peer=theirs,
                note={"cold": "version=1, 8 files, empty cache", "again": "version=1, new process",
                      "pinned": "full commit, new process"}[step],
            ),
            Figure(
                name=f"{step}-seconds",
                value=statistics.median(run.seconds for run in ours),
                unit="s",
                target=statistics.median(run.seconds for run in peer),
                peer=statistics.median(run.seconds for run in peer),
                note=f"import of the client and get_kernel, median of {rounds}",
            ),
        ]  # fmt: skip
    return figures


def together(bench: Bench, processes: int) -> list[Figure]:
    """Many processes started together on an empty cache."""
    totals: dict[str, tuple[int, int, float]] = {}
    for client in (OURS, PEER):
        cache = bench.cache()
        bench.asked()
        bench.hub.clear()
        began = time.perf_counter()
        started = [bench.start(client, SMALL, {"version": 1}, cache) for _ in range(processes)]
        for process in started:
            finish(process)
        seconds = time.perf_counter() - began
        paths = Counter(
            record.path
            for record in bench.hub.requests
            if "/resolve/" in record.path and record.method == "GET"
        )
        totals[client] = (len(bench.asked()), max(paths.values()), seconds)
    (ours, most, seconds), (theirs, peer_most, peer_seconds) = totals[OURS], totals[PEER]
    note = f"{processes} processes at once, empty cache"
    return [
        Figure(name="fleet-requests", value=ours, unit="requests", peer=theirs, note=note),
        Figure(
            name="fleet-fetches-per-file",
            value=most,
            unit="requests",
            target=1,
            peer=peer_most,
            note="the file fetched most often",
        ),
        Figure(
            name="fleet-seconds",
            value=seconds,
            unit="s",
            target=peer_seconds,
            peer=peer_seconds,
            note="from the first start to the last end, torch's import included",
        ),
    ]


def memory(bench: Bench, megabytes: int) -> list[Figure]:
    """How much higher the peak of a process is that loads a large file than one that does not."""
    grown: dict[str, float] = {}
    seconds: dict[str, float] = {}
    for client in (OURS, PEER):
        small = bench.load(client, SMALL, {"version": 1}, bench.cache())
        large = bench.load(client, LARGE, {"version": 1}, bench.cache())
        grown[client] = (large.peak - small.peak) / 2**20
        seconds[client] = large.seconds
    note = f"peak resident memory over that without the file of {megabytes} MB"
    return [
        Figure(
            name="large-memory",
            value=grown[OURS],
            unit="MB",
            target=64,
            peer=grown[PEER],
            note=note,
        ),
        Figure(
            name="large-seconds",
            value=seconds[OURS],
            unit="s",
            peer=seconds[PEER],
            note=f"cold get_kernel with a file of {megabytes} MB, one run;"
            " ours hashes it twice, the peer never",
        ),
    ]


def run(options: argparse.Namespace) -> Report:
    with tempfile.TemporaryDirectory(prefix="kernelhub-bench-") as name:
        folder = Path(name)
        with running_hub(folder / "hub") as hub:
            api = HfApi(endpoint=hub.url, token=False)
            commit = publish(api, SMALL, {})
            publish(api, LARGE, {"data.bin": os.urandom(1 << 20) * options.megabytes})
            bench = Bench(hub=hub, folder=folder)
            figures = [
                *single(bench, commit, options.rounds),
                *together(bench, options.processes),
                *memory(bench, options.megabytes),
            ]
    return Report(title="Loading a kernel: kernelhub against HF's kernels", figures=figures)


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=16)
    parser.add_argument("--megabytes", type=int, default=200)
    options = parser.parse_args()
    return emit(run(options), options)


if __name__ == "__main__":
    sys.exit(main())
