"""GPU architectures by name, and how much shared memory one block may ask for on each.

Sources: sm_90 was read off a device's error text; the others are "maximum shared memory per block,
opt-in" of NVIDIA's CUDA C++ Programming Guide (technical specifications per compute capability) and
LDS per workgroup of AMD's CDNA3 and CDNA4 instruction set guides.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kernelhub.errors import InputError

SHARED_MEMORY = {
    "sm_80": 166912,
    "sm_86": 101376,
    "sm_89": 101376,
    "sm_90": 232448,
    "sm_100": 232448,
    "sm_120": 101376,
    "sm_121": 101376,
    "gfx942": 65536,
    "gfx950": 163840,
}
"""Bytes, by architecture. One that is not listed is compiled for and not compared."""

DEFAULT_ARCHS = {"cuda": ("sm_80", "sm_90", "sm_100", "sm_120"), "rocm": ("gfx942",)}
"""What a kernel is compiled for when its project declares no architectures, by backend."""

_CAPABILITY = re.compile(r"(?:sm_?|cuda:)?(\d+)\.?(\d)[af]?(?:\+PTX)?", re.ASCII | re.IGNORECASE)
_GFX = re.compile(r"(?:hip:|rocm:)?(gfx[0-9a-f]{3,5})(?::.*)?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One architecture.

    Attributes:
        arch: "sm_90" or "gfx942".
        backend: as Triton calls it, "cuda" or "hip".
        shared_memory: bytes that one block may ask for, None if unknown.
    """

    arch: str
    backend: str

    @property
    def shared_memory(self) -> int | None:
        return SHARED_MEMORY.get(self.arch)

    @property
    def warp_size(self) -> int:
        return 64 if self.arch.startswith("gfx9") else 32


def parse_target(text: str) -> Target:
    """Read "sm_90", "cuda:90", a CUDA capability ("9.0", "9.0a", "12.0+PTX") or "gfx942".

    Raises:
        InputError: it is none of these.
    """
    if match := _GFX.fullmatch(text.strip()):
        return Target(arch=match[1], backend="hip")
    if match := _CAPABILITY.fullmatch(text.strip()):
        return Target(arch=f"sm_{int(match[1])}{match[2]}", backend="cuda")
    raise InputError(
        f"{text!r} is not an architecture",
        hint="write sm_90, a CUDA capability such as 9.0, or an AMD name such as gfx942",
    )
