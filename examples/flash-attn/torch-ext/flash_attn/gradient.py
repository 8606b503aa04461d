"""The backward pass on the host: one function over all implementations and their block sizes."""

from __future__ import annotations

import math

import torch
import triton

from . import backward_configs as configs
from .backward import delta_kernel, dkdv_kernel, dq_kernel
from .configs import head_block
from .device import facts

try:
    from . import hopper_backward
except ImportError:  # Gluon exists on some targets only
    hopper_backward = None  # type: ignore[assignment]

LOG2E = math.log2(math.e)
DELTA_ROWS = 64
Gradients = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


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
    implementation: str = "triton",
    block_m: int = 32,
    block_n: int = 64,
    num_warps: int = 4,
    num_stages: int = 2,
    dq_block_m: int = 64,
    dq_block_n: int = 32,
    dq_num_warps: int = 4,
    dq_num_stages: int = 2,
) -> Gradients:
    """Gradients (dq, dk, dv) of `attention.attention_fwd`.

    Args:
        do: gradient of the output, last dimension adjacent.
        out, lse: what the forward pass returned.
        implementation and the rest: see `backward_configs`. "hopper" wants tensors that
            `tuned.suits`.

    With "triton" the result is bit-equal from run to run and the memory beyond the results is 4
    bytes per row and head. With "hopper" dK and dV are, and dQ is a sum in float32 whose order is
    not fixed; that sum takes 4 dim bytes per row and head.
    """
    grads = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    if q.numel() == 0 or k.numel() == 0:
        return grads[0].zero_(), grads[1].zero_(), grads[2].zero_()
    if implementation == "hopper":
        assert hopper_backward is not None
        hopper_backward.launch(
            do, q, k, v, out, lse, grads, softmax_scale, right,
            block_m=block_m, block_n=block_n, num_warps=num_warps, num_stages=num_stages,
        )  # fmt: skip
        return grads
    _two_passes(
        do, q, k, v, out, lse, grads, softmax_scale, left, right, None, None,
        q.shape[0], q.shape[1], k.shape[1],
        (block_m, block_n, num_warps, num_stages),
        (dq_block_m, dq_block_n, dq_num_warps, dq_num_stages),
    )  # fmt: skip
    return grads


def attention_varlen_bwd(
    do: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    softmax_scale: float,
    left: int | None = None,
    right: int | None = None,
) -> Gradients:
    """Gradients (dq, dk, dv) of `attention.attention_varlen_fwd`, bit-equal from run to run."""
    grads = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    batch = cu_seqlens_q.numel() - 1
    if batch == 0 or max_seqlen_q == 0 or max_seqlen_k == 0 or q.numel() == 0 or k.numel() == 0:
        return grads[0].zero_(), grads[1].zero_(), grads[2].zero_()
    device = facts(q)
    config = configs.default_backward(
        dim=q.shape[2],
        hopper=False,
        rows=max_seqlen_q,
        amd=device.amd,
        shared_memory=device.shared_memory,
    )
    _, *sizes = config.values()
    _two_passes(
        do, q, k, v, out, lse, grads, softmax_scale, left, right, cu_seqlens_q, cu_seqlens_k,
        batch, max_seqlen_q, max_seqlen_k, tuple(sizes[:4]), tuple(sizes[4:]),
    )  # fmt: skip
    return grads


def _strides(tensor: torch.Tensor, varlen: bool) -> tuple[int, int, int]:
    """Strides (batch, seq, head) of a (batch, seq, head, dim) or packed (seq, head, dim) tensor."""
    if varlen:
        return (0, tensor.stride(0), tensor.stride(1))
    return tensor.stride()[:3]


def _two_passes(
    do: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    grads: Gradients,
    softmax_scale: float,
    left: int | None,
    right: int | None,
    cu_seqlens_q: torch.Tensor | None,
    cu_seqlens_k: torch.Tensor | None,
    batch: int,
    queries: int,
    keys: int,
    first: configs.Tile,
    second: configs.Tile,
) -> None:
    """Fills `grads`: dK and dV by blocks of keys, then dQ by blocks of queries."""
    varlen = cu_seqlens_q is not None
    heads, dim = q.shape[-2:]
    heads_k = k.shape[-2]
    delta = torch.empty_like(lse)
    l_h = lse.stride(0) if varlen else lse.stride(1)
    l_b = 0 if varlen else lse.stride(0)
    strides = [_strides(x, varlen) for x in (q, k, v, do)]
    common = {"DIM": dim, "BLOCK_D": head_block(dim), "VARLEN": varlen}
    masks = {"LEFT": left is not None, "RIGHT": right is not None}
    bounds = (left or 0, right or 0, softmax_scale * LOG2E, softmax_scale)

    tiles = triton.cdiv(queries, DELTA_ROWS)
    delta_kernel[(tiles * heads * batch,)](
        out, do, delta, cu_seqlens_q, *_strides(out, varlen), *strides[3], l_b, l_h, queries, heads,
        tiles, BLOCK_M=DELTA_ROWS, **common,
    )  # fmt: skip
    block_m, block_n, num_warps, num_stages = first
    tiles = triton.cdiv(keys, block_n)
    dkdv_kernel[(tiles * heads_k * batch,)](
        q, k, v, do, lse, delta, grads[1], grads[2], cu_seqlens_q, cu_seqlens_k,
        *(s for group in strides for s in group), *_strides(grads[1], varlen), *_strides(grads[2],
        varlen), l_b, l_h, queries, keys, heads_k, heads // heads_k, tiles, *bounds,
        BLOCK_M=block_m, BLOCK_N=block_n, num_warps=num_warps, num_stages=num_stages,
        **common, **masks,
    )  # fmt: skip
    block_m, block_n, num_warps, num_stages = second
    tiles = triton.cdiv(queries, block_m)
    dq_kernel[(tiles * heads * batch,)](
        q, k, v, do, lse, delta, grads[0], cu_seqlens_q, cu_seqlens_k,
        *(s for group in strides for s in group), *_strides(grads[0], varlen),
        l_b, l_h, queries, keys, heads, heads // heads_k, tiles, *bounds,
        BLOCK_M=block_m, BLOCK_N=block_n, num_warps=num_warps, num_stages=num_stages,
        **common, **masks,
    )  # fmt: skip
