"""A package of kernels for the compilers' tests, and a measuring process that has no GPU.

    python compiled_samples.py FOLDER

Finds the launches of the package in FOLDER as the measuring process does, has their configurations
compiled by `Compilers`, and then compiles each itself, for a driver that launches nothing. Prints
what came out, and how often this process found a kernel in Triton's cache.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

KERNELS = """
import os
import time

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

BIAS = tl.constexpr(3)
with open(__file__ + ".gpus", "a") as seen:
    print(os.environ.get("CUDA_VISIBLE_DEVICES"), file=seen)


@triton.jit
def helper(x):
    return x + BIAS


CONFIGS = [triton.Config({"BLOCK": b}, num_warps=w) for b, w in ((64, 2), (128, 4))]


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def add(x, out, n, one, scale, ODD: tl.constexpr, KIND: tl.constexpr, BLOCK: tl.constexpr,
        EVEN: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = helper(tl.load(x + at, mask=at < n)).to(KIND) * scale + one + ODD
    tl.store(out + at, value + EVEN, mask=at < n)


def fit(arguments):
    arguments["source"].block_shape = [arguments["BLOCK"], 64]


@triton.autotune(
    configs=[triton.Config({"BLOCK": b}, pre_hook=fit) for b in (16, 32)], key=["rows"]
)
@triton.jit
def move(source, out, rows, BLOCK: tl.constexpr):
    tile = source.load([tl.program_id(0) * BLOCK, 0])
    at = tl.arange(0, BLOCK)[:, None] * 64 + tl.arange(0, 64)[None, :]
    tl.store(out + at, tile)


def die(arguments):
    os.abort()


def hang(arguments):
    time.sleep(60)


@triton.autotune(
    configs=[
        triton.Config({"BLOCK": 64}),
        triton.Config({"BLOCK": 65}),
        triton.Config({"BLOCK": 128}, pre_hook=die),
        triton.Config({"BLOCK": 256}, pre_hook=hang),
    ],
    key=["n"],
)
@triton.jit
def trouble(x, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x + at, 1.0, mask=at < n)


def calls(x, n):
    out = torch.empty_like(x)
    add[(1,)](x, out, n, 1, 0.5, True, tl.float32)
    add[(1,)](x[1:], out, n - 1, one=1, scale=2.0, ODD=False, KIND=tl.bfloat16,
              enable_fp_fusion=False)
    move[(1,)](TensorDescriptor.from_tensor(x.view(-1, 64), [16, 64]), out, n // 64)
    if n == 4096:
        trouble[(1,)](x, n)
"""
WORKLOADS = """
import torch
from kernel_builder.tuning import Case, workload
from compiled import calls


@workload(call=calls, cases=[Case(n=4096), Case(n=1000 * 64)])
def run(n, device):
    return torch.empty(n, dtype=torch.float16, device=device), n
"""


def write(folder: Path) -> None:
    """The package `compiled` and its workloads."""
    (folder / "compiled.py").write_text(KERNELS)
    (folder / "workloads.py").write_text(WORKLOADS)


def main(folder: str) -> None:
    from kernel_builder.compile import driver
    from kernel_builder.tuning.collect import OpenSite
    from kernel_builder.tuning.runner import Task
    from kernel_builder.tuning.runners.compilers import Compilers
    from kernel_builder.tuning.runners.facts import count_compilations
    from kernel_builder.tuning.runners.recipe import recipe_of
    from kernel_builder.tuning.site import Site
    from kernelhub.dispatch.capturing import LiveLaunch, capture

    site = Site(paths=(folder,), package="compiled", workloads=f"{folder}/workloads.py")
    compilers = Compilers(site, 2, seconds=6.0)
    compilers.start()
    driver.use("sm_90")
    opened = OpenSite(site, "cpu")
    live: dict[str, LiveLaunch] = {}

    def notice(launch: LiveLaunch) -> dict[str, object]:
        live.setdefault(launch.launch.key, launch)
        return dict(launch.default)

    for name, workload, case in opened.workloads:
        del name
        args, kwargs = workload.arguments(case, "cpu")
        with capture(notice):
            workload.call(*args, **kwargs)
    jobs = []
    for found in opened.collect():
        assert found.recipe == recipe_of(live[found.point])
        compilers.learn(found)
        task = Task(kernel=found.kernel, case=found.case, point=found.point, features={})
        jobs += [
            (live[found.point], c, compilers.submit(task, c, "sm_90")) for c in found.candidates
        ]
    outcomes = [
        [
            launch.tunable.name,
            config["BLOCK"],
            outcome and outcome.reason,
            outcome and outcome.detail,
        ]
        for launch, config, job in jobs
        for outcome in [job.result(timeout=100)]
    ]
    for jit in {id(launch.tunable.jit): launch.tunable.jit for launch in live.values()}.values():
        jit.device_caches.clear()  # what this process has compiled itself
    counts = count_compilations()
    good = [(launch, config) for launch, config, job in jobs if job.result() is None]
    for launch, config in good:
        launch.compile(config)
    compilers.close()
    print(json.dumps({"outcomes": outcomes, "counts": counts, "good": len(good)}))


if __name__ == "__main__":
    main(sys.argv[1])
