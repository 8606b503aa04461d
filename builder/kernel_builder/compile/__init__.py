"""Compiling Triton kernels for GPUs that are not there, and what the result takes of the device.

In this process, for live kernels (it must not be one that interprets, see `kernelhub.interpreter`):

    compile_launch(kernel, (x, y, n), {"BLOCK": 128, "num_warps": 4}, "sm_90")

A compiler can abort its process on bad input. `pool` runs whole projects in workers that may die.
Importing this package imports neither triton nor torch.
"""

from .targets import DEFAULT_ARCHS, SHARED_MEMORY, Target, parse_target

__all__ = [
    "DEFAULT_ARCHS",
    "SHARED_MEMORY",
    "Refusal",
    "Resources",
    "Target",
    "compile_launch",
    "parse_target",
]

from .launch import Refusal, Resources, compile_launch
