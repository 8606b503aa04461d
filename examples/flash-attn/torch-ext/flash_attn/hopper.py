"""Host side of the sm_90 forward kernel: descriptors, grid, launch."""

from __future__ import annotations

import functools
import math

import torch
import triton
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from .configs import head_block
from .device import facts
from .forward_hopper import forward_kernel

LOG2E = math.log2(math.e)
ROWS = 64
# Registers of a thread at the start, so that this many programs fit on a multiprocessor.
REGISTERS = {2: 128, 3: 80}
TYPES = {torch.bfloat16: gl.bfloat16, torch.float16: gl.float16}


@functools.cache
def _layout(rows: int, block_d: int, dtype: torch.dtype) -> gl.NVMMASharedLayout:
    return gl.NVMMASharedLayout.get_default_for([1, 1, rows, block_d], TYPES[dtype])


def descriptor(tensor: torch.Tensor, rows: int, block_d: int) -> TensorDescriptor:
    """Of a (batch, seq, head, dim) tensor as (batch, head, seq, dim), `rows` rows a block."""
    batch, seq, heads, dim = tensor.shape
    b, s, h, _ = tensor.stride()
    # The stride of a dimension of size 1 may be anything; the copy engine wants multiples of 16
    # bytes.
    strides = [b if batch > 1 else 8, h if heads > 1 else 8, s if seq > 1 else 8, 1]
    # Not through the constructor: it checks again what `suits_copy_engine` has, at 3 us a tensor.
    result = object.__new__(TensorDescriptor)
    result.base = tensor
    result.shape = [batch, heads, seq, dim]
    result.strides = strides
    result.block_shape = [1, 1, rows, block_d]
    result.layout = _layout(rows, block_d, tensor.dtype)
    result.padding = "zero"
    return result


def launch(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    softmax_scale: float,
    right: int | None,
    *,
    block_n: int,
    stages: int,
    consumers: int,
    turns: int,
    persistent: bool,
    polynomials: int,
    residents: int,
) -> None:
    """Fills `out` and `lse` (see `attention.attention_fwd`); q, k and v must pass
    `suits_copy_engine`."""
    batch, queries, heads, dim = q.shape
    keys, heads_k = k.shape[1:3]
    block_d = head_block(dim)
    tiles_m = triton.cdiv(queries, ROWS * consumers)
    if right is not None:
        tiles_m += tiles_m % 2
    tiles = tiles_m * heads * batch
    q_stages, staged = spend_shared_memory(
        facts(q).shared_memory // residents, consumers, 4 * stages * block_n * block_d, block_d
    )
    o_b, o_s, o_h, _ = out.stride()
    work = tiles if right is None else tiles // 2
    programs = facts(q).processors * residents
    forward_kernel[(min(work, programs) if persistent else work,)](
        descriptor(q, ROWS, block_d), descriptor(k, block_n, block_d), descriptor(v, block_n,
        block_d), descriptor(out, ROWS, staged or block_d), lse, out, o_b, o_h, o_s,
        queries, keys, heads, heads // heads_k, tiles_m, tiles, right or 0, softmax_scale * LOG2E,
        DIM=dim, STAGES=stages, CONSUMERS=consumers, RIGHT=right is not None,
        TURNS=turns if consumers > 1 else 0, Q_STAGES=q_stages, STAGED=staged > 0,
        REGISTERS={1: 232, 2: 240}.get(consumers, 160), POLYNOMIALS=polynomials, num_warps=4,
        maxnreg=REGISTERS.get(residents),
    )  # fmt: skip


def spend_shared_memory(limit: int, consumers: int, rings: int, block_d: int) -> tuple[int, int]:
    """(buffers of Q a consumer, columns of the output that are staged at a time) that fit beside
    the rings of K and V."""
    tile = 2 * ROWS * block_d * consumers
    for q_stages, staged in ((2, 2), (1, 2), (2, 1), (1, 1), (2, 0)):
        if rings + tile * q_stages + tile * staged // 2 + 2048 <= limit:
            return q_stages, block_d * staged // 2
    return 1, 0
