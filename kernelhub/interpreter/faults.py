"""What a kernel can do wrong in the interpreter. A leaf, like `kernelhub.errors`."""

from __future__ import annotations

from kernelhub.errors import KernelHubError


class KernelFault(KernelHubError):
    """A kernel did, in the interpreter, what has no defined result on a GPU."""


class OutOfBounds(KernelFault, IndexError):
    """A kernel reads or writes outside the tensor that its pointer argument came from."""


class AssertionFailed(KernelFault, AssertionError):
    """A `tl.device_assert` does not hold."""


class NotInterpretable(KernelFault, NotImplementedError):
    """The kernel uses something that exists only on a GPU."""
