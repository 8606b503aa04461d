"""What the device of a tensor is, asked once per device."""

from __future__ import annotations

import contextlib
import functools
from dataclasses import dataclass

import torch

INTERPRETED_SHARED_MEMORY = 232_448


@dataclass(frozen=True)
class Facts:
    """sm_90 or not, AMD or not, number of processors, bytes of shared memory a program may use."""

    hopper: bool
    amd: bool
    processors: int
    shared_memory: int


@functools.cache
def _facts(index: int) -> Facts:
    properties = torch.cuda.get_device_properties(index)
    amd = torch.version.hip is not None
    shared = 65_536 if amd else getattr(properties, "shared_memory_per_block_optin", 101_376)
    return Facts(
        hopper=not amd and (properties.major, properties.minor) == (9, 0),
        amd=amd,
        processors=properties.multi_processor_count,
        shared_memory=shared,
    )


def facts(tensor: torch.Tensor) -> Facts:
    """Facts of the tensor's device; of a small stand-in for the CPU (Triton's interpreter)."""
    if tensor.device.type != "cuda":
        return Facts(hopper=False, amd=False, processors=4, shared_memory=INTERPRETED_SHARED_MEMORY)
    return _facts(tensor.device.index)


def current(tensor: torch.Tensor) -> contextlib.AbstractContextManager[object]:
    """Makes the tensor's device the current one: Triton launches on the current device."""
    if tensor.device.type != "cuda" or tensor.device.index == torch.cuda.current_device():
        return contextlib.nullcontext()
    return torch.cuda.device(tensor.device)
