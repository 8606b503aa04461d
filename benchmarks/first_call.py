"""The first call of a kernel in a new process: with a tree (one compile), and under autotune.

Each sample is a process of its own with an empty Triton cache. Timed is the call itself, after
imports and after the device was used once. Needs a GPU; without one the compiles are counted and
timed under a driver that launches nothing, and the first line says so.

    python -m benchmarks.first_call [--json [FILE]] [--samples N] [--configs N]
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from typing import Any

from benchmarks._report import Figure, Report, arguments, emit, environment

CHILD = """
import json, sys, time
how, count = sys.argv[1], int(sys.argv[2])
import torch, triton
from benchmarks import _dispatch_kernels as kernels
gpu = torch.cuda.is_available()
if not gpu:
    from benchmarks import fake_gpu
    fake_gpu.use()
compiles = []
triton.knobs.runtime.jit_post_compile_hook = lambda **k: compiles.append(k["repr"]) and None
kernel = kernels.first(count)
if how == "tree":
    from kernelhub.dispatch.device import torch_device
    from kernelhub.dispatch.dispatcher import bound_tree
    from kernelhub.dispatch.triton import TritonTunable
    from kernelhub.dispatch.triton_config import flatten
    from kernelhub.formats.tree import Leaf, Tree
    device = torch_device(0) if gpu else fake_gpu.H200
    tunable = TritonTunable("scaled", kernel, device)
    tree = Tree(kernel="scaled", device=device, tools={}, source_hash=tunable.source_hash(),
                features={}, configs=(flatten(tunable.author.configs[-1]),), root=Leaf((0,)))
    tunable.give(lambda: [bound_tree(tree, "scaled", overlay=False)])
x = torch.ones(2048, device="cuda" if gpu else "cpu")
out = torch.empty_like(x)
wait = torch.cuda.synchronize if gpu else (lambda: None)
wait()
start = time.perf_counter()
kernel[(1,)](x, out, 2048)
wait()
first = time.perf_counter() - start
start = time.perf_counter()
kernel[(1,)](x, out, 2048)
wait()
print(json.dumps({"first": first, "second": time.perf_counter() - start,
                  "compiles": len(compiles), "gpu": torch.cuda.get_device_name() if gpu else None}))
"""


def first_call(how: str, configs: int) -> dict[str, Any]:
    """One new process with an empty cache."""
    with tempfile.TemporaryDirectory() as cache:
        env = {**os.environ, "TRITON_CACHE_DIR": cache, "TRITON_DEFAULT_FP_FUSION": "1"}
        done = subprocess.run(
            [sys.executable, "-c", CHILD, how, str(configs)],
            env=env, capture_output=True, text=True, check=True,
        )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--samples", type=int, default=5)
    parser.add_argument("--configs", type=int, default=16)
    options = parser.parse_args()
    configs = options.configs
    runs: dict[str, list[dict[str, Any]]] = {"tree": [], "autotune": []}
    for _ in range(options.samples):
        for how, found in runs.items():
            found.append(first_call(how, configs))
    first = {how: statistics.median([run["first"] for run in found]) for how, found in runs.items()}
    compiles = {how: max(run["compiles"] for run in found) for how, found in runs.items()}
    peer = f"triton.autotune over {configs} configurations"
    figures = [
        Figure(name="first call with a tree", value=first["tree"] * 1e3, unit="ms"),
        Figure(name="first call under autotune", value=first["autotune"] * 1e3, unit="ms"),
        Figure(
            name="autotune / tree", value=first["autotune"] / first["tree"], unit="x", peer=peer
        ),
        Figure(name="compiles with a tree", value=compiles["tree"], unit="", target=1),
        Figure(name="compiles under autotune", value=compiles["autotune"], unit="", peer=peer),
    ]
    gpu = runs["tree"][0]["gpu"]
    where = gpu or "no GPU: compiled for sm_90, nothing launched or benchmarked"
    samples = {how: [run["first"] * 1e3 for run in found] for how, found in runs.items()}
    facts = environment(device=where)
    title = "First call in a new process, empty compile cache"
    emit(Report(title=title, figures=figures, environment=facts, samples=samples), options)


if __name__ == "__main__":
    main()
