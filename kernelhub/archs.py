"""Whether a device is among the architectures that a build declares. Pure.

The rules are those of HF's client: a CUDA capability `9.0` stands for the same major version and an
equal or newer minor one, `9.0a` for exactly that, `10.0f` for its family (as `9.0`), `9.0+PTX` for
everything newer; a ROCm architecture is compared exactly up to the first `:`. Where none of the
strings is understood the build passes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from .formats.tree_model import DeviceFacts

_CUDA = re.compile(r"(?P<major>\d+)\.(?P<minor>\d)(?P<suffix>[af]?)(?P<ptx>\+PTX)?")


def fits(backend: str, archs: Sequence[str], device: DeviceFacts) -> bool:
    """Whether a build of `backend` for `archs` runs on `device`."""
    if backend == "rocm":
        return device.arch.partition(":")[0] in {arch.partition(":")[0] for arch in archs}
    if backend != "cuda":
        return True
    parsed = [match for arch in archs if (match := _CUDA.fullmatch(arch.strip()))]
    capability = _capability(device.arch)
    if not parsed or capability is None:
        return True
    return any(_cuda_fits(match, capability) for match in parsed)


def _capability(arch: str) -> tuple[int, int] | None:
    """ "sm_90" -> (9, 0), "sm_120" -> (12, 0)."""
    digits = arch.removeprefix("sm_")
    if not digits.isdigit() or len(digits) < 2:
        return None
    return int(digits[:-1]), int(digits[-1])


def _cuda_fits(declared: re.Match[str], device: tuple[int, int]) -> bool:
    major, minor = int(declared["major"]), int(declared["minor"])
    if declared["ptx"] and device >= (major, minor):
        return True
    if declared["suffix"] == "a":
        return device == (major, minor)
    return device[0] == major and device[1] >= minor
