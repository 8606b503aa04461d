"""A Triton driver for a GPU that is not there: argument specialisation and compilation are real.

Triton's launch path asks its driver for the target, the device number and how to load a binary.
This one answers the first two and loads nothing, so `kernel.run(..., warmup=True)` compiles exactly
what a launch with those arguments would. It implements `DriverBase`, which is not a public
interface of Triton: `tests/check/test_compile.py` notices when a release changes it.
"""

from __future__ import annotations

import itertools
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase

from .targets import Target, parse_target

# A JITFunction binds the target of a device number at first use: one number for each.
_numbers: dict[str, int] = {}
_count = itertools.count()


class CompilingDriver(DriverBase):  # type: ignore[misc]
    """Says that a GPU of one architecture is device `number`; cannot launch."""

    def __init__(self, target: Target) -> None:
        arch: int | str = int(target.arch[3:]) if target.backend == "cuda" else target.arch
        self.target = GPUTarget(target.backend, arch, target.warp_size)
        self.limit = target.shared_memory or 0
        if target.arch not in _numbers:
            _numbers[target.arch] = next(_count)
        self.number = _numbers[target.arch]
        self.utils = self
        self.launcher_cls = _no_launcher

    @classmethod
    def is_active(cls) -> bool:
        return True

    def get_current_target(self) -> Any:
        return self.target

    def get_current_device(self) -> int:
        return self.number

    def set_current_device(self, device: int) -> None:
        """Nothing to do: there is no device."""

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device("cpu")

    def get_device_interface(self) -> Any:
        import torch

        return torch.cpu

    def map_python_to_cpp_type(self, ty: str) -> str:
        return ty

    def get_device_properties(self, device: int) -> dict[str, int]:
        """What kernels and tuners ask of a device; sizes in bytes, a middling number of SMs."""
        return {
            "max_shared_mem": self.limit,
            "multiprocessor_count": 128,
            "warpSize": self.target.warp_size,
            "max_num_regs": 65536,
        }

    def load_binary(self, name: str, binary: Any, shared: int, device: int) -> tuple[Any, ...]:
        return object(), object(), 0, 0, 1024  # module, function, registers, spills, threads

    def unload_module(self, module: Any) -> None:
        """Nothing was loaded."""

    def get_benchmarker(self) -> Any:
        return lambda _call, quantiles=None, **_: [0.0] * len(quantiles or (0,))

    def get_empty_cache_for_benchmark(self) -> Any:
        return None

    def clear_cache(self, cache: Any) -> None:
        """There is none."""


def use(arch: str) -> CompilingDriver:
    """Make Triton in this process compile for an architecture ("sm_90", "gfx942", "9.0").

    Raises:
        InputError: it is no architecture.
    """
    driver = CompilingDriver(parse_target(arch))
    triton.runtime.driver.set_active(driver)
    return driver


def _no_launcher(_source: Any, _metadata: Any) -> Any:
    return lambda *_args, **_kwargs: None
