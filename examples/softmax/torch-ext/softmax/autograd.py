"""The public function: checks, launches, gradients."""

import math

import torch
import triton
from torch.autograd.function import once_differentiable

from .kernels import softmax_backward, softmax_forward

_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def softmax(x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    """softmax(scale * x) over the last dimension.

    Args:
        x: (..., N), float32, float16 or bfloat16; the last dimension should be contiguous (it is
            copied if it is not).
        scale: multiplied into `x` first, such as an inverse temperature.

    Returns:
        (..., N) in the dtype of `x`, rows summing to 1. Differentiable in `x`.

    Raises:
        ValueError: a dtype or shape does not fit.
    """
    if x.dim() == 0 or x.dtype not in _DTYPES:
        raise ValueError(
            f"x must have a dimension and be float32, float16 or bfloat16, not {x.dtype}"
        )
    return _Softmax.apply(x, float(scale))


def _rows(tensor: torch.Tensor) -> torch.Tensor:
    """(..., N) as (M, N) with contiguous rows; a view wherever the strides allow one."""
    flat = tensor.reshape(math.prod(tensor.shape[:-1]), tensor.shape[-1])
    return flat if flat.stride(-1) == 1 or flat.shape[-1] <= 1 else flat.contiguous()


class _Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        rows = _rows(x)
        count, columns = rows.shape
        y = torch.empty_like(rows, memory_format=torch.contiguous_format)
        if rows.numel():
            softmax_forward[lambda meta: (triton.cdiv(count, meta["BLOCK_M"]),)](
                rows, y, count, columns, rows.stride(0), y.stride(0), scale
            )
        ctx.save_for_backward(y)
        ctx.scale = scale
        return y.view(x.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        if not y.numel():
            return dy, None
        dy_rows = _rows(dy)
        count, columns = y.shape
        dx = torch.empty_like(y)
        softmax_backward[lambda meta: (triton.cdiv(count, meta["BLOCK_M"]),)](
            dy_rows, y, dx, count, columns, dy_rows.stride(0), y.stride(0), dx.stride(0), ctx.scale
        )
        return dx.view(dy.shape), None
