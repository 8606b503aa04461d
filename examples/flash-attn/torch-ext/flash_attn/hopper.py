"""Host side of the sm_90 forward kernel: descriptors, grid, launch."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import torch
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor
from triton.runtime.errors import OutOfResources

from .configs import cdiv, head_block
from .device import facts
from .forward_hopper import forward_kernel
from .launching import Prepared

LOG2E = math.log2(math.e)
ROWS = 64
RESIDENTS = {1: 2, 2: 1}  # programs of so many consumers that share a multiprocessor
REGISTERS = {1: 232, 2: 240}  # of a thread of theirs
KERNEL = Prepared(forward_kernel)
TYPES = {torch.bfloat16: gl.bfloat16, torch.float16: gl.float16, torch.float32: gl.float32}


@functools.cache
def _layout(rows: int, block_d: int, dtype: torch.dtype) -> gl.NVMMASharedLayout:
    return gl.NVMMASharedLayout.get_default_for([1, 1, rows, block_d], TYPES[dtype])


@functools.lru_cache(1024)
def _geometry(
    shape: tuple[int, ...], stride: tuple[int, ...], rows: int, block_d: int, dtype: torch.dtype
) -> dict[str, Any]:
    """Attributes of a descriptor but its tensor."""
    batch, seq, heads, dim = shape
    b, s, h, _ = stride
    return {
        "shape": [batch, heads, seq, dim],
        # The stride of a dimension of size 1 may be anything; the copy engine wants multiples of 16
        # bytes.
        "strides": [b if batch > 1 else 8, h if heads > 1 else 8, s if seq > 1 else 8, 1],
        "block_shape": [1, 1, rows, block_d],
        "layout": _layout(rows, block_d, dtype),
        "padding": "zero",
    }


def descriptor(tensor: torch.Tensor, rows: int, block_d: int) -> TensorDescriptor:
    """Of a (batch, seq, head, dim) tensor as (batch, head, seq, dim), `rows` rows a block."""
    # Not through the constructor: it checks again what `suits_copy_engine` has, at 3 us a tensor.
    result = object.__new__(TensorDescriptor)
    result.__dict__.update(
        _geometry(tensor.shape, tensor.stride(), rows, block_d, tensor.dtype), base=tensor
    )
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
    persistent: bool,
    ahead: bool,
) -> None:
    """Fills `out` and `lse` (see `attention.attention_fwd`); q, k and v must pass
    `suits_copy_engine`."""
    batch, queries, heads, dim = q.shape
    keys, heads_k = k.shape[1:3]
    block_d = head_block(dim)
    plan = _plan(
        block_d, block_n, stages, consumers, ahead, right is not None, facts(q).shared_memory
    )
    tiles_m = cdiv(queries, ROWS * consumers)
    work = tiles_m * heads * batch
    tiles = work
    if right is not None:
        tiles_m += tiles_m % 2
        tiles = tiles_m * heads * batch
        work = tiles // 2
    programs = min(work, facts(q).processors * RESIDENTS[consumers]) if persistent else work
    KERNEL.launch(
        (plan, q.dtype, q.device.index), programs,
        (
            descriptor(q, ROWS, block_d), descriptor(k, block_n, block_d),
            descriptor(v, block_n, block_d), descriptor(out, ROWS, plan.columns), lse,
            queries, keys, heads, heads // heads_k, tiles_m, tiles, right or 0,
            softmax_scale * LOG2E,
        ),
        plan.constants, plan.options,
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Plan:
    """What a configuration means for one head dimension: the columns of the output that are stored
    at a time, and the kernel's constants and options."""

    columns: int
    constants: dict[str, Any]
    options: dict[str, Any]


@functools.cache
def _plan(
    block_d: int, block_n: int, stages: int, consumers: int, ahead: bool, bounded: bool,
    shared_memory: int,
) -> Plan:  # fmt: skip
    """See `Plan`.

    Raises:
        triton.runtime.errors.OutOfResources: more registers or shared memory than a program has.
    """
    # Scores, probabilities and output of 64 rows on 128 threads, and about 32 for the rest; with
    # the scores of two blocks, probabilities only as they go into the product.
    needed = block_n + block_d // 2 + 32 + (block_n // 4 if ahead else 0)
    if needed > REGISTERS[consumers]:
        raise OutOfResources(needed, REGISTERS[consumers], "registers")
    limit = shared_memory // RESIDENTS[consumers]
    tile = 2 * ROWS * block_d * consumers
    block = 2 * block_n * block_d
    rings = 2 * stages * block + 2048
    # More rows of Q, and the whole output staged; ahead, Q of two tiles and K of one block more.
    for q_stages, halves, more_k in ((2, 2, 1), (2, 1, 1)) if ahead else (
        (2, 2, 0), (1, 2, 0), (2, 1, 0), (1, 1, 0),
    ):  # fmt: skip
        needed = rings + tile * q_stages + tile * halves // 2 + more_k * block
        if needed <= limit:
            break
    else:
        raise OutOfResources(needed, limit, "shared memory")
    constants = {
        "STAGES": stages, "CONSUMERS": consumers, "RIGHT": bounded, "Q_STAGES": q_stages,
        "AHEAD": ahead,
    }  # fmt: skip
    # At the start all warps have the same number of registers, so that two programs of one
    # consumer share a multiprocessor.
    options = {"num_warps": 4, "maxnreg": 128 if consumers == 1 else None}
    return Plan(block_d * halves // 2, constants, options)
