"""Root-mean-square normalisation over the last dimension, forward and backward, in Pallas."""

from .api import rms_norm

__all__ = ["rms_norm"]
