"""Seconds from `get_kernel` to the first result, in a new process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile

CHILD = """
import json, sys, time
import torch
device = sys.argv[2]
if device == "cpu":
    from kernelhub import interpreter
    interpreter.enable()
q = torch.randn(2, 16, 1024 if device == "cuda" else 32, 128, device=device).bfloat16()
start = time.perf_counter()
from kernelhub import get_kernel
backend = "cuda" if device == "cpu" else None
kernel = get_kernel(sys.argv[1], version=1, backend=backend, trust_remote_code=True)
loaded = time.perf_counter()
float(kernel.scaled_dot_product_attention(q, q, q).sum())
print(json.dumps({"load": loaded - start, "total": time.perf_counter() - start}))
"""


def first_calls(repo: str, device: str, processes: int) -> dict[str, list[dict[str, float]]]:
    """Seconds to load and in all, with empty caches of kernels and compiled code ("cold") and once
    more with the same ("warm"), by process. The device was used before; its driver is up."""
    found: dict[str, list[dict[str, float]]] = {"cold": [], "warm": []}
    for _ in range(processes):
        with tempfile.TemporaryDirectory() as folder:
            own = {"HF_HOME": f"{folder}/hub", "TRITON_CACHE_DIR": f"{folder}/triton"}
            for samples in found.values():
                done = subprocess.run(
                    [sys.executable, "-c", CHILD, repo, device],
                    env={**os.environ, **own}, capture_output=True, text=True, check=True,
                )  # fmt: skip
                samples.append(json.loads(done.stdout.splitlines()[-1]))
    return found
