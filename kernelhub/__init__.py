"""Load GPU and TPU kernels from a Hub: verified, compiled just in time, dispatched by trees.

This module holds names only. Each is imported when it is first used, so `import kernelhub` pulls in
neither torch, triton, jax, pydantic nor the network stack.
"""

from __future__ import annotations

import importlib

from ._version import __version__

TYPE_CHECKING = False  # type checkers take this name for true; importing it costs 10 ms
if TYPE_CHECKING:
    from typing import Any

    from .catalogue import has_kernel
    from .dispatch.record import record
    from .dispatch.tunable import tunable
    from .kernel_deps import get_kernel_dep
    from .loader import get_kernel, get_loaded_kernels, get_local_kernel

_HOME = {
    "get_kernel": "loader",
    "get_kernel_dep": "kernel_deps",
    "get_loaded_kernels": "loader",
    "get_local_kernel": "loader",
    "has_kernel": "catalogue",
    "record": "dispatch.record",
    "tunable": "dispatch.tunable",
}

__all__ = [
    "__version__",
    "get_kernel",
    "get_kernel_dep",
    "get_loaded_kernels",
    "get_local_kernel",
    "has_kernel",
    "record",
    "tunable",
]


def __getattr__(name: str) -> Any:
    try:
        home = _HOME[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    return getattr(importlib.import_module(f".{home}", __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
