"""Root-mean-square normalisation over the last dimension, forward and backward, in Triton."""

from .autograd import rms_norm

__all__ = ["rms_norm"]
