"""A Triton kernel on a machine without a GPU: loaded as it is published, run by the interpreter."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable

import published
import pytest

from kernelhub.serve.testing import RunningHub

Publish = Callable[..., str]

pytestmark = [
    pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in ("torch", "triton", "numpy")),
        reason="needs torch, triton and numpy",
    ),
]

KERNEL = b'''"""Adds two vectors."""

import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    tl.store(out + at, tl.load(x + at, mask) + tl.load(y + at, mask), mask)


def add(x, y):
    out = torch.empty_like(x)
    add_kernel[(triton.cdiv(x.numel(), 64),)](x, y, out, x.numel(), BLOCK=64)
    return out
'''

USE = """
import sys
if sys.argv[2] == "torch-first":
    import torch, triton
from kernelhub import get_kernel, get_loaded_kernels
kernel = get_kernel(sys.argv[1], trust_remote_code=True)
(loaded,) = get_loaded_kernels()
import inspect, torch
assert loaded.interpreted
assert inspect.getsource(kernel.add_kernel.fn).startswith("@triton.jit")
for dtype in (torch.float32, torch.bfloat16):
    x, y = torch.randn(100).to(dtype), torch.randn(100).to(dtype)
    torch.testing.assert_close(kernel.add(x, y), x + y)
print(loaded.variant)
"""


@pytest.mark.parametrize(
    ("variants", "extension", "order"),
    [
        (("cuda",), None, "torch-first"),
        (("cpu", "cuda"), {"languages": ["triton"]}, "kernel-first"),
    ],
)
def test_it_is_interpreted(
    hub: RunningHub,
    publish: Publish,
    variants: tuple[str, ...],
    extension: dict[str, object] | None,
    order: str,
) -> None:
    files: dict[str, bytes] = {}
    for backend in variants:
        files |= published.variant({"__init__.py": KERNEL}, backend=backend, extension=extension)
    publish("demo/add", files)
    done = subprocess.run(
        [sys.executable, "-c", USE, "demo/add==1", order],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"torch-{variants[0]}"
    assert done.stderr.count("run in Triton's interpreter") == 1
