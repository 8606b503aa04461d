"""Before and after the sm_90 backward kernel: statistics of the rows, and the sum that becomes dQ.

The kernel reads the rows of a head up to a multiple of its block, so these buffers are padded:
`padded` rows a head, and absent rows add nothing.
"""

import triton
import triton.language as tl

from .forward_triton import load_rows

# Sizes change from call to call: none of them may start another compilation.
SIZES = ("queries", "heads", "padded", "tiles")


@triton.jit(do_not_specialize=SIZES)
def prepare_kernel(
    o, do, lse, logs, sums, total, o_b, o_s, o_h, do_b, do_s, do_h, queries, heads, padded, tiles,
    DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr,
):  # fmt: skip
    """For BLOCK_M rows of a head: `logs`, the log2-sum-exp of the scores (inf where a row sees no
    key or is absent: its probabilities become 0); `sums`, the dot product of O and dO; and zeros in
    `total`, BLOCK_D float32 a row."""
    tile = tl.program_id(0) % tiles
    pair = (tl.program_id(0) // tiles).to(tl.int64)
    batch = pair // heads
    head = pair % heads
    start = tile * BLOCK_M
    rows = tl.arange(0, BLOCK_M)
    dims = tl.arange(0, BLOCK_D)
    inside = start + rows < queries
    a = load_rows(
        o + batch * o_b + head * o_h, start, rows, queries, o_s, dims, DIM, True
    ).to(tl.float32)  # fmt: skip
    b = load_rows(
        do + batch * do_b + head * do_h, start, rows, queries, do_s, dims, DIM, True
    ).to(tl.float32)  # fmt: skip
    log = tl.load(lse + pair * queries + start + rows, mask=inside, other=float("-inf"))
    log = tl.where(log == float("-inf"), float("inf"), log) * 1.4426950408889634
    at = pair * padded + start + rows
    tl.store(logs + at, log)
    tl.store(sums + at, tl.sum(a * b, 1))
    empty = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    tl.store(total + at[:, None] * BLOCK_D + dims[None, :], empty)


@triton.jit(do_not_specialize=SIZES)
def finish_kernel(
    total, dq, dq_b, dq_s, dq_h, queries, heads, padded, tiles, softmax_scale,
    DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr,
):  # fmt: skip
    """dQ = total * softmax_scale, in the dtype and the strides of `dq`."""
    tile = tl.program_id(0) % tiles
    pair = (tl.program_id(0) // tiles).to(tl.int64)
    rows = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    dims = tl.arange(0, BLOCK_D)
    at = (pair * padded + rows)[:, None] * BLOCK_D + dims[None, :]
    keep = (rows < queries)[:, None] & (dims < DIM)[None, :]
    values = tl.load(total + at, mask=keep, other=0.0) * softmax_scale
    base = dq + pair // heads * dq_b + pair % heads * dq_h
    to = rows.to(tl.int64)[:, None] * dq_s + dims[None, :]
    tl.store(base + to, values.to(dq.dtype.element_ty), mask=keep)
