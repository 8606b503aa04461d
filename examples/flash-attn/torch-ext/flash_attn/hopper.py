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
from .device import Facts, facts
from .forward_hopper import forward_kernel
from .launching import Prepared

LOG2E = math.log2(math.e)
ROWS = 64
RESIDENTS = {1: 2, 2: 1}  # programs of so many consumers that share a multiprocessor
REGISTERS = {1: 232, 2: 240}  # of a thread of theirs
KERNEL = Prepared(forward_kernel)
TYPES = {torch.bfloat16: gl.bfloat16, torch.float16: gl.float16, torch.float32: gl.float32}

Sizes = tuple[int, ...]
Geometry = dict[str, Any]


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


def _described(tensor: torch.Tensor, geometry: Geometry) -> TensorDescriptor:
    """`descriptor` with what it would look up."""
    result = object.__new__(TensorDescriptor)
    result.__dict__.update(geometry, base=tensor)
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
) -> None:
    """Fills `out` and `lse` (see `attention.attention_fwd`); q, k and v must pass
    `suit_copy_engine`."""
    plan = _plan(
        q.shape, k.shape, q.stride(), k.stride(), v.stride(), out.stride(), q.dtype,
        right is not None, block_n, stages, consumers, persistent, facts(q),
    )  # fmt: skip
    of_q, of_k, of_v, of_out = plan.geometries
    KERNEL.launch(
        (plan.kernel, q.device.index), plan.programs,
        (
            _described(q, of_q), _described(k, of_k), _described(v, of_v), _described(out, of_out),
            lse, *plan.sizes, right or 0, softmax_scale * LOG2E,
        ),
        plan.kernel.constants, plan.kernel.options,
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Kernel:
    """What a configuration means for one head dimension and dtype: the columns of the output that
    are stored at a time, and the kernel's constants and options."""

    columns: int
    constants: dict[str, Any]
    options: dict[str, Any]


@dataclass(frozen=True, eq=False)
class Plan:
    """A launch but for its tensors: the kernel, geometries of q, k, v and the output, the number of
    programs, and the sizes that the kernel takes."""

    kernel: Kernel
    geometries: tuple[Geometry, Geometry, Geometry, Geometry]
    programs: int
    sizes: Sizes


@functools.lru_cache(1024)
def _plan(
    q_shape: Sizes, k_shape: Sizes, q_stride: Sizes, k_stride: Sizes, v_stride: Sizes,
    out_stride: Sizes, dtype: torch.dtype, bounded: bool, block_n: int, stages: int,
    consumers: int, persistent: bool, device: Facts,
) -> Plan:  # fmt: skip
    """See `Plan`; raises as `_kernel`."""
    batch, queries, heads, dim = q_shape
    keys, heads_k = k_shape[1:3]
    block_d = head_block(dim)
    kernel = _kernel(block_d, dtype, block_n, stages, consumers, bounded, device.shared_memory)
    tiles_m = cdiv(queries, ROWS * consumers)
    work = tiles_m * heads * batch
    tiles = work
    if bounded:
        tiles_m += tiles_m % 2
        tiles = tiles_m * heads * batch
        work = tiles // 2
    programs = min(work, device.processors * RESIDENTS[consumers]) if persistent else work
    geometries = (
        _geometry(q_shape, q_stride, ROWS, block_d, dtype),
        _geometry(k_shape, k_stride, block_n, block_d, dtype),
        _geometry(k_shape, v_stride, block_n, block_d, dtype),
        _geometry(q_shape, out_stride, ROWS, kernel.columns, dtype),
    )
    return Plan(
        kernel, geometries, programs, (queries, keys, heads, heads // heads_k, tiles_m, tiles)
    )


@functools.cache
def _kernel(
    block_d: int, dtype: torch.dtype, block_n: int, stages: int, consumers: int, bounded: bool,
    shared_memory: int,
) -> Kernel:  # fmt: skip
    """See `Kernel`.

    Raises:
        triton.runtime.errors.OutOfResources: more registers or shared memory than a program has.
    """
    # Scores, probabilities and output of 64 rows on 128 threads, and about 32 for the rest.
    needed = block_n + block_d // 2 + 32
    if needed > REGISTERS[consumers]:
        raise OutOfResources(needed, REGISTERS[consumers], "registers")
    limit = shared_memory // RESIDENTS[consumers]
    tile = 2 * ROWS * block_d * consumers
    rings = 4 * stages * block_n * block_d + 2048
    # More rows of Q, and the whole output staged.
    for q_stages, halves in ((2, 2), (1, 2), (2, 1), (1, 1)):
        needed = rings + tile * q_stages + tile * halves // 2
        if needed <= limit:
            break
    else:
        raise OutOfResources(needed, limit, "shared memory")
    constants = {"STAGES": stages, "CONSUMERS": consumers, "RIGHT": bounded, "Q_STAGES": q_stages}
    # At the start all warps have the same number of registers, so that two programs of one
    # consumer share a multiprocessor.
    options = {"num_warps": 4, "maxnreg": 128 if consumers == 1 else None}
    return Kernel(block_d * halves // 2, constants, options)
