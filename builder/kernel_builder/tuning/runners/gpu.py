"""The GPU of a measuring process: there is one, and it is made ready while others import."""

from __future__ import annotations

import importlib.util
from typing import Any

from kernel_builder.tuning.runners.ahead import Ahead
from kernelhub.errors import MissingExtra, TuningError


def torch_with_gpu(index: int) -> Any:
    """torch, with that GPU as its current one.

    Raises:
        MissingExtra: torch is not installed.
        TuningError: it sees no such GPU.
    """
    try:
        import torch
    except ImportError as error:
        raise MissingExtra("measuring", "triton") from error
    if not torch.cuda.is_available() or index >= torch.cuda.device_count():
        raise no_gpu()
    torch.cuda.set_device(index)
    return torch


def no_gpu() -> TuningError:
    """There is nothing to measure on."""
    return TuningError(
        "measuring needs a GPU that torch can see, and there is none",
        hint="run this on a machine with one; `--phase build` refits from measurements without it",
    )


def open_device(ahead: Ahead, torch: Any, index: int) -> None:
    """Have a GPU's context made, and Triton's part of its driver if Triton is imported."""

    def context() -> None:
        torch.empty(1, device=f"cuda:{index}")

    def driver() -> None:
        from triton.runtime.driver import driver

        _ = driver.active.utils

    ahead.start(context)
    if importlib.util.find_spec("triton") is not None:
        ahead.start(driver)
