"""Elementwise max(x, 0) with an optional scale."""

import torch

from . import layers
from ._ops import ops
from .op import scales

__all__ = ["layers", "relu", "scales"]


def relu(x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    """Return scale * max(x, 0)."""
    return ops.relu(x, scale)
