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
L2_SHARE = 24 << 20  # bytes of K and V, of the 50 MB of L2, that the heads walked together may take
TYPES = {torch.bfloat16: gl.bfloat16, torch.float16: gl.float16}


@functools.lru_cache(maxsize=None)
def _layout(rows: int, block_d: int, dtype: torch.dtype) -> gl.NVMMASharedLayout:
    return gl.NVMMASharedLayout.get_default_for([1, 1, rows, block_d], TYPES[dtype])


def descriptor(tensor: torch.Tensor, rows: int, block_d: int) -> TensorDescriptor:
    """Of a (batch, seq, head, dim) tensor as (batch, head, seq, dim), in blocks of `rows` rows of one head."""
    batch, seq, heads, dim = tensor.shape
    b, s, h, _ = tensor.stride()
    # The stride of a dimension of size 1 may be anything; the copy engine wants multiples of 16 bytes.
    strides = [b if batch > 1 else 8, h if heads > 1 else 8, s if seq > 1 else 8, 1]
    return TensorDescriptor(
        tensor, [batch, heads, seq, dim], strides, [1, 1, rows, block_d],
        _layout(rows, block_d, tensor.dtype),
    )  # fmt: skip


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
) -> None:
    """Fills `out` and `lse` (see `attention.attention_fwd`); q, k and v must pass `suits_copy_engine`."""
    batch, queries, heads, dim = q.shape
    keys, heads_k = k.shape[1:3]
    block_d = head_block(dim)
    tiles_m = triton.cdiv(queries, ROWS * consumers)
    tiles = tiles_m * heads * batch
    chunk = 1 if right is None else heads_walked_together(batch, heads, heads_k, keys * block_d)
    rings = 4 * stages * block_n * block_d
    staged = rings + 4 * consumers * ROWS * block_d + 1024 <= facts(q).shared_memory
    o_b, o_s, o_h, _ = out.stride()
    programs = facts(q).processors * (2 if consumers == 1 else 1)
    forward_kernel[(min(tiles, programs) if persistent else tiles,)](
        descriptor(q, ROWS, block_d), descriptor(k, block_n, block_d), descriptor(v, block_n, block_d),
        descriptor(out, ROWS, block_d), lse, out, o_b, o_h, o_s,
        queries, keys, heads, heads // heads_k, tiles_m, tiles, chunk, right or 0, softmax_scale * LOG2E,
        DIM=dim, STAGES=stages, CONSUMERS=consumers, RIGHT=right is not None,
        TURNS=turns if consumers > 1 else 0, STAGED=staged,
        REGISTERS={1: 232, 2: 240}.get(consumers, 160), num_warps=4, maxnreg=128 if consumers == 1 else None,
    )  # fmt: skip


def heads_walked_together(batch: int, heads: int, heads_k: int, elements: int) -> int:
    """Heads whose K and V, `elements` each a key head, stay in L2 together: a divisor of batch * heads."""
    fitting = L2_SHARE // (4 * elements) * (heads // heads_k)
    chunk = max(1, min(heads * batch, fitting))
    while heads * batch % chunk:
        chunk -= 1
    return chunk
