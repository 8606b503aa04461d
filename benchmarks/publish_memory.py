"""How much memory does publishing a large file take, and how long?

Publishes a kernel with one incompressible file to an embedded Hub: with `kernel_builder`, and for
comparison with `HfApi.upload_folder` of huggingface_hub, its Xet storage off as it needs a service
that no local Hub has. Each runs in a process of its own; memory is the growth of the resident set's
peak over what it was when everything was imported. Linux only.

    python -m benchmarks.publish_memory [--size MB] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from kernel_builder.pack import build
from kernel_builder.project import Project
from kernelhub.serve.testing import hub_process

TARGET_MB = 64.0

BUILD_TOML = """\
[general]
name = "large-file"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cpu"]

[torch-noarch]
pyext = ["py", "bin"]
"""

MEASURE = """
import json, time
from pathlib import Path

def status(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))

Path("/proc/self/clear_refs").write_text("5")
before, start = status("VmRSS"), time.perf_counter()
work()
print(json.dumps({"mb": (status("VmHWM") - before) / 1024, "s": time.perf_counter() - start}))
"""

OURS = """
import sys
import griffe, huggingface_hub
from kernel_builder.hub import Hub, quiet_library
from kernel_builder.project import Project
from kernel_builder.publish import Options, publish
quiet_library()
hub, project = Hub(sys.argv[1]), Project.open(sys.argv[2])

def work():
    publish(project, hub, Options(repo_id="demo/ours"))
"""

PEER = """
import sys
from huggingface_hub import HfApi
from huggingface_hub.utils import disable_progress_bars
disable_progress_bars()
api = HfApi(endpoint=sys.argv[1])

def work():
    api.create_repo("demo/peer", repo_type="model")
    api.upload_folder(repo_id="demo/peer", folder_path=sys.argv[2] + "/build", path_in_repo="build")
"""


def measure(code: str, *arguments: str) -> dict[str, float]:
    path = os.pathsep.join(entry for entry in sys.path if entry)
    done = subprocess.run(
        [sys.executable, "-c", code + MEASURE, *arguments],
        env={**os.environ, "PYTHONPATH": path, "HF_HUB_DISABLE_XET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(done.stderr)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def make_project(root: Path, megabytes: int) -> None:
    package = root / "torch-ext" / "large_file"
    package.mkdir(parents=True)
    (root / "build.toml").write_text(BUILD_TOML)
    (package / "__init__.py").write_text("__all__ = []\n")
    with (package / "data.bin").open("wb") as stream:
        for _ in range(megabytes):
            stream.write(os.urandom(1_000_000))
    build(Project.open(root))


def run(megabytes: int) -> dict[str, object]:
    folder = Path(tempfile.mkdtemp())
    try:
        make_project(folder / "project", megabytes)
        with hub_process(folder / "hub") as (url, _):
            ours = measure(OURS, url, str(folder / "project"))
            peer = measure(PEER, url, str(folder / "project"))
    finally:
        shutil.rmtree(folder)
    library = f"huggingface_hub {version('huggingface_hub')} upload_folder"
    note = f"one file of {megabytes} MB, embedded Hub on this machine"
    return {
        "figures": [
            {
                "name": "publish-memory",
                "value": round(ours["mb"], 1),
                "unit": "MiB",
                "target": TARGET_MB,
                "met": ours["mb"] < TARGET_MB,
                "peer": {"name": library, "value": round(peer["mb"], 1)},
                "note": f"growth of the publisher's resident memory; {note}",
            },
            {
                "name": "publish-time",
                "value": round(ours["s"], 2),
                "unit": "s",
                "target": None,
                "met": None,
                "peer": {"name": library, "value": round(peer["s"], 2)},
                "note": f"build verified and hashed, compared, sent, card; {note}",
            },
        ],
        "environment": {"python": platform.python_version(), "machine": platform.machine()},
        "command": f"python -m benchmarks.publish_memory --size {megabytes}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Memory and time of publishing a large file.")
    parser.add_argument("--size", type=int, default=200, metavar="MB")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    report = run(options.size)
    if options.json:
        print(json.dumps(report, indent=2))
        return
    print(f"{'figure':16} {'ours':>8} {'peer':>8} {'target':>8}")
    for figure in report["figures"]:  # type: ignore[attr-defined]
        target = "" if figure["target"] is None else f"{figure['target']:g}"
        print(
            f"{figure['name']:16} {figure['value']:8} {figure['peer']['value']:8} {target:>8} "
            f"{figure['unit']}"
        )


if __name__ == "__main__":
    main()
