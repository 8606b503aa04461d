"""The backward pass on the host."""

from __future__ import annotations

import math

import torch
import triton

from . import configs
from .backward import delta_kernel, dkdv_kernel, dq_kernel
from .device import facts

LOG2E = math.log2(math.e)
DELTA_ROWS = 64


def _strides(tensor: torch.Tensor, varlen: bool) -> tuple[int, int, int]:
    """Strides (batch, seq, head) of a (batch, seq, head, dim) or packed (seq, head, dim) tensor."""
    if varlen:
        return (0, tensor.stride(0), tensor.stride(1))
    return tensor.stride()[:3]


def attention_bwd(
    do: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    softmax_scale: float,
    left: int | None = None,
    right: int | None = None,
    *,
    cu_seqlens_q: torch.Tensor | None = None,
    cu_seqlens_k: torch.Tensor | None = None,
    max_seqlen_q: int = 0,
    max_seqlen_k: int = 0,
    dkdv: configs.Config | None = None,
    dq: configs.Config | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Gradients (dq, dk, dv) of `attention_fwd`, or of `attention_varlen_fwd` where cu_seqlens are
    given.

    Args:
        do: gradient of the output, last dimension adjacent.
        out, lse: what the forward pass returned.
        dkdv, dq: block_m, block_n, num_warps, num_stages of the two kernels; None takes the
            defaults.

    The result is bit-equal from run to run. The memory beyond the results is 4 bytes per row and
    head.
    """
    varlen = cu_seqlens_q is not None
    batch = cu_seqlens_q.numel() - 1 if cu_seqlens_q is not None else q.shape[0]
    queries = max_seqlen_q if varlen else q.shape[1]
    keys = max_seqlen_k if varlen else k.shape[1]
    heads, dim = q.shape[-2:]
    heads_k = k.shape[-2]
    grads = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    if batch == 0 or queries == 0 or keys == 0 or q.numel() == 0 or k.numel() == 0:
        return grads[0].zero_(), grads[1].zero_(), grads[2].zero_()
    device = facts(q)
    default = configs.default_backward(dim=dim, amd=device.amd, shared_memory=device.shared_memory)
    first, second = dkdv or default[0], dq or default[1]
    delta = torch.empty_like(lse)
    l_h = lse.stride(0) if varlen else lse.stride(1)
    l_b = 0 if varlen else lse.stride(0)
    strides = [_strides(x, varlen) for x in (q, k, v, do)]
    common = {"DIM": dim, "BLOCK_D": configs.head_block(dim), "VARLEN": varlen}
    masks = {"LEFT": left is not None, "RIGHT": right is not None}
    bounds = (left or 0, right or 0, softmax_scale * LOG2E, softmax_scale)

    tiles = triton.cdiv(queries, DELTA_ROWS)
    delta_kernel[(tiles * heads * batch,)](
        out, do, delta, cu_seqlens_q, *_strides(out, varlen), *strides[3], l_b, l_h, queries, heads,
        tiles, BLOCK_M=DELTA_ROWS, **common,
    )  # fmt: skip
    tiles = triton.cdiv(keys, first["block_n"])
    dkdv_kernel[(tiles * heads_k * batch,)](
        q, k, v, do, lse, delta, grads[1], grads[2], cu_seqlens_q, cu_seqlens_k,
        *(s for group in strides for s in group), *_strides(grads[1], varlen), *_strides(grads[2],
        varlen), l_b, l_h, queries, keys, heads_k, heads // heads_k, tiles, *bounds,
        BLOCK_M=first["block_m"], BLOCK_N=first["block_n"], num_warps=first["num_warps"],
        num_stages=first["num_stages"], **common, **masks,
    )  # fmt: skip
    tiles = triton.cdiv(queries, second["block_m"])
    dq_kernel[(tiles * heads * batch,)](
        q, k, v, do, lse, delta, grads[0], cu_seqlens_q, cu_seqlens_k,
        *(s for group in strides for s in group), *_strides(grads[0], varlen),
        l_b, l_h, queries, keys, heads, heads // heads_k, tiles, *bounds,
        BLOCK_M=second["block_m"], BLOCK_N=second["block_n"], num_warps=second["num_warps"],
        num_stages=second["num_stages"], **common, **masks,
    )  # fmt: skip
    return grads
