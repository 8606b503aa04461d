"""Host side of the sm_90 backward kernel: buffers, descriptors, grids, launches."""

from __future__ import annotations

import math

import torch
import triton
from triton.runtime.errors import OutOfResources

from .backward_hopper import backward_kernel
from .backward_sums import finish_kernel, prepare_kernel
from .configs import head_block
from .hopper import descriptor

LOG2E = math.log2(math.e)
PADDING = 128  # rows of a head are padded to a multiple: the largest block
ROWS = 64  # of a program before and after


def launch(
    do: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    grads: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    softmax_scale: float,
    right: int | None,
    *,
    block_m: int,
    block_n: int,
    num_warps: int,
    num_stages: int,
) -> None:
    """Fills `grads` (see `gradient.attention_bwd`); do, q, k and v must pass `suits_copy_engine`.

    The order in which shares of dQ are added differs from run to run: dK and dV are bit-equal,
    dQ is not. The memory beyond the results is 4 (dim + 2) bytes per row and head.

    Raises:
        triton.runtime.errors.OutOfResources: the configuration is not for this head dim.
    """
    batch, queries, heads, dim = q.shape
    keys, heads_k = k.shape[1:3]
    block_d = head_block(dim)
    do_stages, columns = share_memory(block_d, block_n, num_warps, num_stages)
    padded = triton.cdiv(queries, PADDING) * PADDING
    dq, dk, dv = grads
    logs, sums = torch.empty((2, batch * heads, padded), dtype=torch.float32, device=q.device)
    total = torch.empty((batch, heads, padded, block_d), dtype=torch.float32, device=q.device)
    tiles = padded // ROWS
    sizes = {"DIM": dim, "BLOCK_D": block_d, "BLOCK_M": ROWS}
    prepare_kernel[(tiles * heads * batch,)](
        out, do, lse, logs, sums, total, *out.stride()[:3], *do.stride()[:3], queries, heads,
        padded, tiles, **sizes,
    )  # fmt: skip
    key_tiles = triton.cdiv(keys, block_n)
    backward_kernel[(key_tiles * heads_k * batch,)](
        descriptor(q, block_m, block_d), descriptor(k, block_n, block_d),
        descriptor(v, block_n, block_d), descriptor(do, block_m, block_d),
        descriptor(dk, block_n, block_d), descriptor(dv, block_n, block_d),
        descriptor(total.transpose(1, 2), block_m, columns),
        logs, sums, padded, queries, keys, heads_k, heads // heads_k, key_tiles, right or 0,
        softmax_scale * LOG2E, softmax_scale,
        STAGES=num_stages, DO_STAGES=do_stages, RIGHT=right is not None, WIDE=block_d > 128,
        WARPS=num_warps, num_warps=num_warps, maxnreg=128 if num_warps == 4 else None,
    )  # fmt: skip
    finish_kernel[(tiles * heads * batch,)](
        total, dq, *dq.stride()[:3], queries, heads, padded, tiles, softmax_scale, **sizes
    )


def share_memory(block_d: int, block_n: int, num_warps: int, stages: int) -> tuple[int, int]:
    """(depth of the ring of dO, columns of dQ that are staged at a time).

    Raises:
        triton.runtime.errors.OutOfResources: the configuration is not for this head dim.
    """
    wide = block_d > 128
    # Accumulators of dK, dV, S and dP: what a thread has room for, and whole warpgroups.
    needed = 8 * block_n * block_d // (128 * num_warps) + 96
    limit = 240 if num_warps == 8 else 200  # two programs share a multiprocessor
    if needed > limit or block_d < 32 or block_n != num_warps * (8 if wide else 16):
        raise OutOfResources(needed, limit, "registers")
    if wide and stages > 2:
        raise OutOfResources(stages, 2, "stages")
    return (1, block_d // 2) if wide else (stages, block_d)
