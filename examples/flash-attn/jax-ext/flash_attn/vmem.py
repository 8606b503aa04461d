"""VMEM: what the forward kernel needs at least, and what a chip has."""

import math

from jax.experimental.pallas import tpu as pltpu

LANES, SUBLANES = 128, 8


class OutOfResources(ValueError):
    """Blocks that cannot fit into the chip's memory, by the name under which dispatch knows it."""


def padded(rows, columns, itemsize):
    """Bytes of an array in VMEM, whose tiles are 128 lanes and 8 rows of 32 bits."""
    tile = SUBLANES * max(1, 4 // itemsize)
    return math.ceil(rows / tile) * tile * math.ceil(columns / LANES) * LANES * itemsize


def needed(q, k, *, kv_rows, block_q, block_k, blocks):
    """Bytes for `kv_rows` rows each of K and V, beside a block of rows and its running sums.

    A lower bound: the compiler also wants room for what does not fit its registers.
    """
    dim, itemsize = q.shape[3], q.dtype.itemsize
    rows_and_result = 2 * 2 * padded(block_q, dim, itemsize)  # while one is worked on, one moves
    statistics = 4 * padded(1, block_q, 4)
    sums = padded(dim, block_q, 4)
    scores = min(blocks, 2) * padded(block_k, block_q, 4)
    return 2 * padded(kv_rows, dim, itemsize) + rows_and_result + statistics + sums + scores


def available():
    """Bytes of VMEM of the chip that is traced for."""
    return pltpu.get_tpu_info().vmem_capacity_bytes


def check(q, k, *, what, **blocks):
    """The chip's VMEM in bytes, for the `blocks` that `needed` takes.

    Raises:
        OutOfResources: the blocks do not fit; the text has the bytes needed and available.
    """
    need, have = needed(q, k, **blocks), available()
    if need > have:
        chip = pltpu.get_tpu_info().chip_version.value
        raise OutOfResources(
            f"attention of q {q.shape} over k {k.shape} in {q.dtype}, {what}: needs at least "
            f"{need / 2**20:.1f} MiB of VMEM and TPU {chip} has {have / 2**20:.0f} MiB: use "
            "smaller blocks, or the strategy stream, whose need does not grow with the length"
        )
    return have
