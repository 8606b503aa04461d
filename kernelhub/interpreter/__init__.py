"""Triton kernels on a machine without a GPU: Triton's interpreter, with its faults put right.

Triton can run kernels as numpy programs. As it comes, that mode computes bfloat16 as integers,
rounds 8-bit floats wrongly, ignores `device_assert`, reads and writes outside tensors in silence,
and cannot run a kernel under `triton.autotune`. `enable()` turns the mode on for this process and
applies `patches.PATCHES`, one row a fault. What cannot be computed (inline assembly, libdevice,
Gluon) is refused with a `KernelFault`; a Triton release whose answers stay wrong is refused by
`verify()`, so no wrong number is returned in silence.

The mode belongs to the process: it stands in `TRITON_INTERPRET`, which child processes inherit.
Kernels are either interpreted or compiled, fixed when `@triton.jit` decorates them. Launches
are serialised, since the interpreter keeps its state in globals. Tensors live in CPU memory;
nothing here imports torch, triton or numpy before `enable()` is called.
"""

from __future__ import annotations

import threading

from kernelhub.errors import KernelHubError

from .faults import AssertionFailed, KernelFault, NotInterpretable, OutOfBounds

__all__ = [
    "AssertionFailed",
    "KernelFault",
    "NotInterpretable",
    "OutOfBounds",
    "enable",
    "enabled",
    "verify",
]

_lock = threading.RLock()
_outcome: KernelHubError | bool = False


def enabled() -> bool:
    """Whether `enable()` has succeeded in this process."""
    return _outcome is True


def enable() -> None:
    """Make Triton kernels that are imported from now on run in the interpreter, on CPU tensors.

    Calling it again, from any thread, does nothing more.

    Raises:
        MissingExtra: triton, torch or numpy is not installed.
        LoadError: triton was imported in compiling mode and cannot be switched any more, or this
            release of Triton computes wrong numbers that the patches do not put right.
    """
    global _outcome  # the mode is a property of the process
    with _lock:
        if _outcome is True:
            return
        if isinstance(_outcome, KernelHubError):  # half a switch cannot be repeated
            raise _outcome
        from . import mode, patches

        mode.enter()
        try:
            patches.apply()
            verify()
        except KernelHubError as error:
            _outcome = error
            raise
        _outcome = True


def verify() -> None:
    """Run small kernels in the interpreter and compare with numbers that are known.

    Raises:
        LoadError: a result is wrong; the text names it and the version of Triton.
    """
    from . import selfcheck

    selfcheck.run()
