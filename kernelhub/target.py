"""Facts of this machine, frozen: what the choice of a variant may depend on.

`detect()` looks without importing torch, triton or jax where package metadata is enough.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .formats.tree import DeviceFacts

BACKENDS = ("cann", "cpu", "cuda", "metal", "neuron", "rocm", "tpu", "xpu")
FRAMEWORKS = ("torch", "jax")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One machine, as the choice of a variant sees it.

    Attributes:
        backend: one of BACKENDS, per framework: {"torch": "cuda", "jax": "cpu"}; a framework
            that is not installed is absent.
        device: the accelerator, None on a machine without one.
        python: "3.11.7".
        versions: installed distributions that ranges may name, e.g. {"torch": "2.11.0"}.
        platform: "linux-x86_64", "win32-amd64", "darwin-arm64".
        interpreter: whether Triton's interpreter may stand in for a missing GPU.
    """

    backend: Mapping[str, str]
    device: DeviceFacts | None
    python: str
    versions: Mapping[str, str] = field(default_factory=dict)
    platform: str
    interpreter: bool = False
