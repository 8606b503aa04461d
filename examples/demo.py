"""The whole road on one machine without a GPU: check, build, serve, publish, load, run, compare.

    python examples/demo.py

Uses the commands that an author and a user would use, each in a process of its own. The last line
is one JSON object: each step and its seconds.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROJECTS = ("rms-norm", "fused-matmul")
STEP_TIMEOUT = 300  # seconds

USE_TRITON = """
import torch
from kernelhub import get_kernel

kernel = get_kernel("demo/rms-norm", version=1, trust_remote_code=True)
torch.manual_seed(0)
for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 8e-3)):
    x = torch.randn(33, 300, dtype=dtype, requires_grad=True)
    weight = torch.randn(300, dtype=dtype, requires_grad=True)
    got = kernel.rms_norm(x, weight)
    got.backward(torch.ones_like(got))
    x64, w64 = (t.detach().double().requires_grad_() for t in (x, weight))
    want = torch.nn.functional.rms_norm(x64, (300,), w64, 1e-6)
    want.backward(torch.ones_like(want))
    for name, a, b in (("y", got, want), ("dx", x.grad, x64.grad), ("dw", weight.grad, w64.grad)):
        error = ((a.double() - b).norm() / b.norm()).item()
        print(f"rms_norm {dtype} {name}: relative error {error:.1e} (limit {tolerance:.0e})")
        assert error < tolerance, (dtype, name, error)
"""

USE_PALLAS = """
import jax, jax.numpy as jnp
from kernelhub import get_kernel

kernel = get_kernel("demo/fused-matmul", version=1, trust_remote_code=True)
keys = jax.random.split(jax.random.key(0), 3)
x, w, b = (jax.random.normal(k, s) for k, s in zip(keys, ((70, 300), (300, 130), (130,))))
got = kernel.fused_matmul(x, w, b, activation="gelu")
want = jax.nn.gelu(jnp.dot(x, w, precision="highest") + b, approximate=True)
error = float(jnp.linalg.norm(got - want) / jnp.linalg.norm(want))
print(f"fused_matmul float32 relative error {error:.1e} (limit 1e-05)")
assert error < 1e-5, error
"""


class Road:
    """Runs one step after the other in a temporary folder and remembers how long each took."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seconds: dict[str, float] = {}
        self.environment = {
            **os.environ,
            "HF_HOME": str(folder / "home"),
            "KERNELHUB_CACHE": str(folder / "cache"),
        }

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        print(f"== {name}", flush=True)
        start = time.perf_counter()
        yield
        self.seconds[name] = round(time.perf_counter() - start, 2)

    def run(self, *command: str) -> None:
        shown = "python -c ..." if command[1:2] == ("-c",) else " ".join(command)
        print(f"$ {shown}", flush=True)
        subprocess.run(
            command, cwd=self.folder, env=self.environment, check=True, timeout=STEP_TIMEOUT
        )

    @contextlib.contextmanager
    def hub(self) -> Iterator[str]:
        """A Hub of our own on a free port, stopped at the end."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        url = f"http://127.0.0.1:{port}"
        log = (self.folder / "hub.log").open("wb")
        command = ["kernelhub", "serve", "--root", "hub", "--port", str(port)]
        print(f"$ {' '.join(command)} &", flush=True)
        server = subprocess.Popen(
            command, cwd=self.folder, env=self.environment, stdout=log, stderr=log
        )
        try:
            wait_for(f"{url}/api/agent-harnesses", server)
            self.environment["HF_ENDPOINT"] = url
            yield url
        finally:
            server.terminate()
            server.wait(timeout=30)
            log.close()


def wait_for(url: str, server: subprocess.Popen[bytes]) -> None:
    """Return when the server answers; fail when it has ended or 30 seconds have passed."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if server.poll() is not None:
            sys.exit(f"the Hub ended with exit code {server.returncode}")
        try:
            urllib.request.urlopen(url, timeout=5).close()  # noqa: S310 - our own http address
        except urllib.error.URLError:
            time.sleep(0.05)
        else:
            return
    sys.exit("the Hub did not answer within 30 seconds")


def walk(road: Road) -> None:
    """Every step of the road, in order."""
    for project in PROJECTS:
        shutil.copytree(
            HERE / project, road.folder / project, ignore=shutil.ignore_patterns("build")
        )
    with road.step("check"):
        for project in PROJECTS:
            road.run("kernel-builder", "check", project)
    with road.step("build"):
        for project in PROJECTS:
            road.run("kernel-builder", "build", project)
    with road.hub() as url:
        with road.step("publish"):
            for project in PROJECTS:
                target = ("--repo-id", f"demo/{project}", "--endpoint", url)
                road.run("kernel-builder", "publish", project, *target)
        with road.step("load and run: Triton"):
            road.run(sys.executable, "-c", USE_TRITON)
        with road.step("load and run: Pallas"):
            road.run(sys.executable, "-c", USE_PALLAS)
    with road.step("load again, Hub stopped"):
        road.run(sys.executable, "-c", USE_TRITON)


def main() -> None:
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="kernelhub-demo-") as folder:
        road = Road(Path(folder))
        walk(road)
    total = round(time.perf_counter() - start, 2)
    print(json.dumps({"ok": True, "seconds": road.seconds, "total": total}))


if __name__ == "__main__":
    main()
