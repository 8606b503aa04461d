"""Kernels that the tests tune, in every form that Triton's decorators take."""

from . import functions, ops  # noqa: F401
