"""Attention without the score matrix in memory, in Pallas: forward and backward, TPU and GPU."""

from .interface import flash_attn_func, scaled_dot_product_attention

__all__ = ["flash_attn_func", "scaled_dot_product_attention"]
