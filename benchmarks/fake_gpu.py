"""An sm_90 driver that launches nothing, so that host time can be taken without a GPU."""

from __future__ import annotations

from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase

from kernelhub.formats.tree import DeviceFacts

H200 = DeviceFacts(
    name="NVIDIA H200", arch="sm_90", sm_count=132, memory=150_754_820_096, shared_memory=232_448
)


class NoLauncher:
    """Stands in for the launcher of a compiled kernel."""

    def __init__(self, *_: Any) -> None:
        pass

    def __call__(self, *_: Any) -> None:
        pass


class FakeDriver(DriverBase):
    """What Triton asks of a driver, for a device that is not there."""

    launcher_cls = NoLauncher

    def __init__(self) -> None:
        self.utils = self

    @classmethod
    def is_active(cls) -> bool:
        return True

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, _: int) -> int:
        return 0

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device("cpu")

    def map_python_to_cpp_type(self, name: str) -> str:
        return name

    def get_device_properties(self, _: int) -> dict[str, int]:
        return {"max_shared_mem": 232_448, "multiprocessor_count": 132, "warpSize": 32,
                "max_num_regs": 65_536}  # fmt: skip

    def load_binary(self, *_: Any) -> tuple[object, object, int, int, int]:
        return object(), object(), 0, 0, 1024

    def unload_module(self, _: Any) -> None:
        pass

    def get_benchmarker(self) -> Any:
        def time_nothing(call: Any, **_: Any) -> list[float]:
            call()
            return [1.0] * 3

        return time_nothing


def use() -> None:
    """Make it Triton's driver."""
    triton.runtime.driver.set_active(FakeDriver())
