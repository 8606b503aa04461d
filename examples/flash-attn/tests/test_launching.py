"""A second launch of a known kernel goes straight to what was compiled, and is no other launch."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from flash_checks import tensors
from triton import knobs
from triton.compiler import CompiledKernel
from triton.runtime.driver import driver


class Compiled(CompiledKernel):
    """Says how it was launched."""

    function = "function"
    module = None  # nothing to unload
    packed_metadata = ()

    def __init__(self, log: list[tuple[Any, ...]]) -> None:
        self.log = log

    @property
    def run(self) -> Any:
        return lambda *args: self.log.append(("run", args[0], *args[9:]))

    def __getitem__(self, grid: tuple[int, int, int]) -> Any:
        return lambda *args: self.log.append(("watched", grid[0], *args))


class Kernel:
    """Stands in for a jitted function."""

    def __init__(self, log: list[tuple[Any, ...]]) -> None:
        self.log = log

    def __getitem__(self, grid: tuple[int, int, int]) -> Any:
        def launch(*args: Any, N: int, num_warps: int) -> Compiled:
            self.log.append(("jit", grid[0], *args, N, num_warps))
            return Compiled(self.log)

        return launch


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    device = SimpleNamespace(get_current_device=lambda: 0, get_current_stream=lambda _: 7)
    monkeypatch.setattr(driver, "_active", device)
    return []


def launch(prepared: Any, key: str, programs: int, size: int) -> None:
    prepared.launch(key, programs, ("pointer", size), {"N": 64}, {"num_warps": 4})


def test_known_kernels_are_launched_with_their_arguments(
    kernel: ModuleType, log: list[tuple[Any, ...]]
) -> None:
    prepared = sys.modules[f"{kernel.__name__}.launching"].Prepared(Kernel(log))
    launch(prepared, "a", 3, 10)
    launch(prepared, "a", 5, 20)
    launch(prepared, "b", 5, 20)
    assert log == [
        ("jit", 3, "pointer", 10, 64, 4),
        ("run", 5, "pointer", 20, 64),
        ("jit", 5, "pointer", 20, 64, 4),
    ]


def test_who_watches_launches_sees_them(
    kernel: ModuleType, log: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = sys.modules[f"{kernel.__name__}.launching"].Prepared(Kernel(log))
    launch(prepared, "a", 3, 10)
    monkeypatch.setattr(knobs.runtime, "launch_enter_hook", lambda _: None)
    launch(prepared, "a", 3, 10)
    assert log[1] == ("watched", 3, "pointer", 10, 64)


def test_what_agreed_once_is_checked_again_when_it_changes(kernel: ModuleType) -> None:
    checks = sys.modules[f"{kernel.__name__}.checks"]
    q, k, v = tensors(1, 8, 8, 2, 2, 16, torch.float16, "cpu")
    checks.check_tensors(q, k, v, "q k v", 4, 2)
    checks.check_tensors(q, k, v, "q k v", 4, 2)
    with pytest.raises(ValueError, match="must have the shape of k"):
        checks.check_tensors(q, k, v[:, :7], "q k v", 4, 2)
    with pytest.raises(ValueError, match="must have the dtype"):
        checks.check_tensors(q, k, v.bfloat16(), "q k v", 4, 2)
    with pytest.raises(ValueError, match="must be a multiple of"):
        checks.check_tensors(q, k[:, :, :0], v[:, :, :0], "q k v", 4, 2)
