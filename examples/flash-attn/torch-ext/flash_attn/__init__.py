"""Attention without the score matrix in memory: forward and backward, tuned for NVIDIA Hopper."""

from .interface import flash_attn_func, flash_attn_varlen_func, scaled_dot_product_attention

__all__ = ["flash_attn_func", "flash_attn_varlen_func", "scaled_dot_product_attention"]
