"""The public function: checks, launches, gradients."""

import math

import torch
import triton
from torch.autograd.function import once_differentiable

from .kernels import rms_norm_backward, rms_norm_forward

_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
# Blocks of the backward pass per multiprocessor: enough to hide latency, few enough that the
# (programs, N) buffer of partial weight gradients stays small.
_PROGRAMS_PER_SM = 4


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """Normalise `x` by the root mean square of its last dimension, times `weight`.

    Args:
        x: (..., N), float32, float16 or bfloat16; the last dimension should be contiguous (it is
            copied if it is not).
        weight: (N,), same device; any of the three dtypes.
        eps: added to the mean square.

    Returns:
        (..., N) in the dtype of `x`. Differentiable in `x` and `weight`.

    Raises:
        ValueError: a shape, dtype or device does not fit; the text names the argument.
    """
    if x.dim() == 0 or x.dtype not in _DTYPES:
        raise ValueError(
            f"x must have a dimension and be float32, float16 or bfloat16, not {x.dtype}"
        )
    if weight.shape != (x.shape[-1],) or weight.dtype not in _DTYPES:
        got = f"{tuple(weight.shape)} {weight.dtype}"
        raise ValueError(f"weight must be ({x.shape[-1]},) of a floating dtype, not {got}")
    if weight.device != x.device:
        raise ValueError(f"weight is on {weight.device}, x on {x.device}: move one of them")
    return _RmsNorm.apply(x, weight, eps)


def _rows(tensor: torch.Tensor) -> torch.Tensor:
    """(..., N) as (M, N) with contiguous rows; a view wherever the strides allow one."""
    flat = tensor.reshape(math.prod(tensor.shape[:-1]), tensor.shape[-1])
    return flat if flat.stride(-1) == 1 or flat.shape[-1] <= 1 else flat.contiguous()


def _processors(device: torch.device) -> int:
    # On the CPU (Triton's interpreter) programs run one after the other.
    return (
        torch.cuda.get_device_properties(device).multi_processor_count
        if device.type == "cuda"
        else 2
    )


class _RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, eps):
        rows = _rows(x)
        count, columns = rows.shape
        weight = weight.contiguous()
        y = torch.empty_like(rows, memory_format=torch.contiguous_format)
        rstd = torch.empty(count, dtype=torch.float32, device=x.device)
        if rows.numel():
            rms_norm_forward[lambda meta: (triton.cdiv(count, meta["BLOCK_M"]),)](
                rows, weight, y, rstd, count, columns, rows.stride(0), y.stride(0), eps
            )
        ctx.save_for_backward(rows, weight, rstd)
        return y.view(x.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        rows, weight, rstd = ctx.saved_tensors
        count, columns = rows.shape
        if not rows.numel():
            return dy, torch.zeros_like(weight), None
        dy_rows = _rows(dy)
        programs = min(count, _PROGRAMS_PER_SM * _processors(rows.device))
        dx = torch.empty_like(rows, memory_format=torch.contiguous_format)
        partial = torch.empty(programs, columns, dtype=torch.float32, device=rows.device)
        rms_norm_backward[(programs,)](
            dy_rows,
            rows,
            weight,
            rstd,
            dx,
            partial,
            count,
            columns,
            dy_rows.stride(0),
            rows.stride(0),
            dx.stride(0),
        )
        return dx.view(dy.shape), partial.sum(0).to(weight.dtype), None
