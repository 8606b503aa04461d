"""Compiles every kernel for a GPU that is not there; prints one JSON object a kernel.

    python compile_check.py cuda:80            or cuda:90, cuda:100, cuda:120, hip:gfx942

Triton is told that a GPU of the target is present, with a launcher that does nothing, and the host
code runs as it is, with the defaults that it would choose there. Nothing is executed.
"""

from __future__ import annotations

import importlib
import itertools
import json
import sys
import tempfile
from pathlib import Path

import torch
import triton
from flash_package import load
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase

# Bytes of shared memory that one block may use: vendors' documentation, sm_90 read off a device.
SHARED = {"80": 166_912, "90": 232_448, "100": 232_448, "120": 101_376, "gfx942": 65_536}


class AbsentGpu(DriverBase):
    """Answers what the JIT asks about a device, and launches nothing."""

    def __init__(self, target: GPUTarget) -> None:
        self.target = target
        self.utils = self
        self.launcher_cls = lambda _src, _metadata: lambda *_args, **_kwargs: None

    @classmethod
    def is_active(cls) -> bool:
        return True

    def get_current_target(self) -> GPUTarget:
        return self.target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, _device: int) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")

    def map_python_to_cpp_type(self, name: str) -> str:
        return name

    def get_device_properties(self, _device: int) -> dict[str, int]:
        return {
            "max_shared_mem": 1 << 30,
            "multiprocessor_count": 132,
            "warpSize": self.target.warp_size,
        }

    def load_binary(self, *_: object) -> tuple[object, object, int, int, int]:
        return object(), object(), 0, 0, 1024

    def unload_module(self, _module: object) -> None:
        pass

    def get_benchmarker(self) -> object:
        return lambda _function, **_: [0.0, 0.0, 0.0]


def parse(text: str) -> GPUTarget:
    backend, arch = text.split(":")
    if backend == "cuda":
        return GPUTarget("cuda", int(arch), 32)
    return GPUTarget("hip", arch, 64)


def compile_all(target: GPUTarget, dims: tuple[int, ...]) -> list[dict[str, object]]:
    """Runs the host code for each head dim and mask, and lists what was compiled."""
    with tempfile.TemporaryDirectory() as folder:
        package = load(Path(folder))
        device = sys.modules[f"{package.__name__}.device"]
        shared = SHARED[str(target.arch)]
        facts = device.Facts(
            hopper=target.arch == 90,
            amd=target.backend == "hip",
            processors=132,
            shared_memory=shared,
        )
        for name in ("attention", "ops", "gradient", "hopper", "tuned"):
            importlib.import_module(f"{package.__name__}.{name}").facts = lambda _tensor: facts
        for dim, causal in itertools.product(dims, (False, True)):
            # The last: rows of a window, one query of a group, packed sequences.
            q = torch.empty(1, 512, 4, dim, dtype=torch.bfloat16, requires_grad=True)
            k = torch.empty(1, 512, 4, dim, dtype=torch.bfloat16)
            package.flash_attn_func(q, k, k, causal=causal).sum().backward()
            with torch.no_grad():
                package.flash_attn_func(q, k, k, window_size=(100, 0 if causal else 10))
                package.flash_attn_func(q[:, :1], k[:, :, :1], k[:, :, :1], causal=causal)
            bounds = torch.tensor([0, 512], dtype=torch.int32)
            package.flash_attn_varlen_func(
                q[0], k[0], k[0], bounds, bounds, 512, 512, causal=causal
            )
        return list(compiled(package.__name__))


def compiled(package: str) -> list[dict[str, object]]:
    rows = []
    for name, module in list(sys.modules.items()):
        if not name.startswith(package):
            continue
        for kernel in vars(module).values():
            if not isinstance(kernel, triton.runtime.JITFunction) or kernel.__module__ != name:
                continue
            for cache in kernel.device_caches.values():
                rows += [
                    {"kernel": f"{name.rpartition('.')[2]}.{kernel.__name__}",
                     "shared": binary.metadata.shared, "num_warps": binary.metadata.num_warps}
                    for binary in cache[0].values()
                ]  # fmt: skip
    return rows


def main() -> None:
    target = parse(sys.argv[1])
    dims = (
        tuple(int(dim) for dim in sys.argv[2].split(","))
        if len(sys.argv) > 2
        else (64, 96, 128, 256)
    )
    triton.runtime.driver.set_active(AbsentGpu(target))
    for row in compile_all(target, dims):
        print(json.dumps(row))


if __name__ == "__main__":
    main()
