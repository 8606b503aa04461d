"""Fused softmax over the last dimension, forward and backward, in Triton."""

from .autograd import softmax

__all__ = ["softmax"]
