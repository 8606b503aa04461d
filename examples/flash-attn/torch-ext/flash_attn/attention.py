"""The forward pass on the host: one function over all implementations and their block sizes."""

from __future__ import annotations

import functools
import math

import torch
import triton

from . import configs
from .decode import combine_kernel
from .device import facts
from .forward_triton import forward_kernel
from .launching import Prepared

try:
    from . import hopper
except ImportError:  # Gluon exists on some targets only
    hopper = None  # type: ignore[assignment]

LOG2E = math.log2(math.e)
MOST_SPLITS = 64
KERNEL = Prepared(forward_kernel)
COMBINE = Prepared(combine_kernel)


Sizes = tuple[int, ...]
UNIT = 8  # elements of 16 bytes: float16 and bfloat16


@functools.lru_cache(1024)
def _suitable(shape: Sizes, stride: Sizes) -> bool:
    pairs = zip(shape[:-1], stride[:-1], strict=True)
    return all(size == 1 or (size > 1 and step > 0 and step % UNIT == 0) for size, step in pairs)


@functools.lru_cache(1024)
def _all_suitable(
    q_shape: Sizes, k_shape: Sizes, q_stride: Sizes, k_stride: Sizes, v_stride: Sizes
) -> bool:
    return (
        _suitable(q_shape, q_stride)
        and _suitable(k_shape, k_stride)
        and _suitable(k_shape, v_stride)
    )


def suits_copy_engine(tensor: torch.Tensor) -> bool:
    """Whether TMA can read a (batch, seq, head, dim) tensor of 2-byte elements: 16-byte aligned,
    nothing empty."""
    return tensor.data_ptr() % 16 == 0 and _suitable(tensor.shape, tensor.stride())


def suit_copy_engine(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> bool:
    """Whether all three do; k and v have one shape."""
    return (q.data_ptr() | k.data_ptr() | v.data_ptr()) % 16 == 0 and _all_suitable(
        q.shape, k.shape, q.stride(), k.stride(), v.stride()
    )


def packs_heads(q: torch.Tensor, k: torch.Tensor) -> bool:
    """Whether the rows of a group of heads are one block: few queries, grouped heads."""
    return q.shape[1] <= 16 and q.shape[2] != k.shape[2]


def attention_fwd(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    softmax_scale: float,
    left: int | None = None,
    right: int | None = None,
    *,
    implementation: str = "triton",
    block_m: int = 128,
    block_n: int = 64,
    num_warps: int = 8,
    num_stages: int = 2,
    consumers: int = 2,
    persistent: bool = True,
    splits: int = 1,
    waves: int = 2,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of whole sequences.

    Args:
        q: (batch, seqlen_q, heads, dim), float16 or bfloat16, last dimension adjacent.
        k, v: (batch, seqlen_k, heads_k, dim); heads is a multiple of heads_k.
        softmax_scale: factor of the scores, above 0.
        left, right: row i sees keys i + seqlen_k - seqlen_q - left to i + seqlen_k - seqlen_q +
            right; None is no bound. Causal attention is (None, 0).
        implementation and the rest: see `configs`. splits: shares of the keys, 0 for so many that
            each multiprocessor gets `waves` programs.

    Returns:
        The output, laid out like q, and the natural log-sum-exp of the scaled scores, (batch,
        heads, seqlen_q) float32; 0 and -inf for rows that see no key.
    """
    batch, queries, heads, dim = q.shape
    out = torch.empty_like(q)
    lse = torch.empty((batch, heads, queries), dtype=torch.float32, device=q.device)
    if out.numel() == 0:
        return out, lse
    if k.shape[1] == 0:
        return out.zero_(), lse.fill_(-math.inf)
    if implementation == "hopper":
        assert hopper is not None
        hopper.launch(
            q, k, v, out, lse, softmax_scale, right,
            block_n=block_n, stages=num_stages, consumers=consumers, persistent=persistent,
        )  # fmt: skip
        return out, lse
    packed = packs_heads(q, k)
    rows, walkers = (queries * heads // k.shape[2], k.shape[2]) if packed else (queries, heads)
    tiles = configs.cdiv(rows, block_m)
    share = k.shape[1]
    if splits != 1:
        splits, share = split_keys(
            k.shape[1], block_n, splits, tiles * walkers * batch, waves * facts(q).processors
        )
    target, target_lse = out, lse
    if splits > 1:
        target = torch.empty(
            (splits, batch, heads, queries, dim), dtype=torch.float32, device=q.device
        )
        target_lse = torch.empty((splits, *lse.shape), dtype=torch.float32, device=q.device)
        o_p, o_b, o_h, o_s, _ = target.stride()
    else:
        o_p = 0
        o_b, o_s, o_h, _ = out.stride()
    stride = (*q.stride()[:3], *k.stride()[:3], *v.stride()[:3], o_p, o_b, o_s, o_h)
    pointers = (q, k, v, target, target_lse)
    constants = {
        "DIM": dim, "BLOCK_D": configs.head_block(dim), "BLOCK_M": block_m, "BLOCK_N": block_n,
        "LEFT": left is not None, "RIGHT": right is not None, "VARLEN": False, "PACKED": packed,
        "SPLIT": splits > 1,
    }  # fmt: skip
    options = {"num_warps": num_warps, "num_stages": num_stages}
    aligned = tuple(tensor.data_ptr() % 16 == 0 for tensor in pointers)
    KERNEL.launch(
        (q.device.index, q.dtype, stride, aligned, *constants.values(), num_warps, num_stages),
        tiles * splits * walkers * batch,
        (
            *pointers, None, None, *stride, lse.numel(), heads * queries, queries, queries,
            k.shape[1], walkers, heads // k.shape[2], tiles, splits, share, left or 0, right or 0,
            softmax_scale * LOG2E,
        ),
        constants, options,
    )  # fmt: skip
    if splits > 1:
        combine(target, target_lse, out, lse)
    return out, lse


def split_keys(keys: int, block_n: int, splits: int, programs: int, wanted: int) -> tuple[int, int]:
    """(number of shares, keys of a share): `splits`, or for 0 what makes `programs` `wanted`."""
    blocks = configs.cdiv(keys, block_n)
    if splits == 0:
        splits = max(1, min(wanted // programs, blocks // 2, MOST_SPLITS))
    share = configs.cdiv(blocks, splits) * block_n
    return configs.cdiv(keys, share), share


def combine(
    parts: torch.Tensor, part_lse: torch.Tensor, out: torch.Tensor, lse: torch.Tensor
) -> None:
    """Joins (splits, batch, heads, queries, dim) partial results into `out` and `lse`."""
    splits, batch, heads, queries, dim = parts.shape
    o_b, o_s, o_h, _ = out.stride()
    stride = (o_b, o_s, o_h, parts.stride(0), dim)
    constants = {
        "DIM": dim, "BLOCK_D": configs.head_block(dim),
        "BLOCK_SPLITS": triton.next_power_of_2(splits),
    }  # fmt: skip
    COMBINE.launch(
        (out.device.index, out.dtype, stride, *constants.values()), batch * heads * queries,
        (parts, part_lse, out, lse, *stride, lse.numel(), queries, heads, splits),
        constants, {"num_warps": max(1, min(8, constants["BLOCK_SPLITS"] * dim // 2048))},
    )  # fmt: skip


def attention_varlen_fwd(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    softmax_scale: float,
    left: int | None = None,
    right: int | None = None,
    *,
    block_m: int = 128,
    block_n: int = 64,
    num_warps: int = 8,
    num_stages: int = 2,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of sequences that lie one after the other.

    Args:
        q: (total_q, heads, dim); k, v: (total_k, heads_k, dim).
        cu_seqlens_q, cu_seqlens_k: int32, (batch + 1), bounds of the sequences, from 0 up.
        max_seqlen_q: no sequence has more queries.

    Returns:
        The output, laid out like q, and the log-sum-exp, (heads, total_q) float32.
    """
    total, heads, dim = q.shape
    batch = cu_seqlens_q.numel() - 1
    out = torch.empty_like(q)
    lse = torch.empty((heads, total), dtype=torch.float32, device=q.device)
    tiles = configs.cdiv(max_seqlen_q, block_m)
    if out.numel() == 0 or tiles == 0 or batch == 0:
        return out, lse
    forward_kernel[(tiles * heads * batch,)](
        q, k, v, out, lse, cu_seqlens_q, cu_seqlens_k,
        0, *q.stride()[:2], 0, *k.stride()[:2], 0, *v.stride()[:2], 0, 0, *out.stride()[:2], 0, 0,
        total, 0, 0, heads, heads // k.shape[1], tiles, 1, 0, left or 0, right or 0, softmax_scale *
        LOG2E, DIM=dim, BLOCK_D=configs.head_block(dim), BLOCK_M=block_m, BLOCK_N=block_n,
        LEFT=left is not None, RIGHT=right is not None, VARLEN=True, PACKED=False, SPLIT=False,
        num_warps=num_warps, num_stages=num_stages,
    )  # fmt: skip
    return out, lse
