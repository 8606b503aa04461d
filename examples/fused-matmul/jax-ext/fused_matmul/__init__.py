"""Matrix product with bias and activation fused into its epilogue, in Pallas."""

from .api import fused_matmul

__all__ = ["fused_matmul"]
