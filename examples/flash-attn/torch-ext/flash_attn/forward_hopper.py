"""Attention forward for sm_90 in Gluon: TMA loads, asynchronous wgmma, warp specialisation.

One warp (the producer) copies K and V blocks into rings in shared memory; CONSUMERS warpgroups own
64 query rows each. A consumer keeps two matrix products in flight, the scores of a block and the
output of the block before, and computes the softmax of the first while the second still runs. That
holds across tiles too: the scores of the next tile's first block run beside the last product of
this one, so that a tile's end leaves no gap (the schedule within a warpgroup of FlashAttention-3,
arXiv 2407.08608; its turns between warpgroups gained nothing here).

Blocks are visited from the last key to the first, so that only the first few need a mask.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    mbarrier,
    tma,
    warpgroup_mma_wait,
)

from .hopper_products import (
    finish_rows,
    issue_output,
    issue_scores,
    release,
    wait_for_values,
    write,
)
from .hopper_schedule import (
    ROWS,
    first_place,
    meet,
    next_place,
    phase,
    produce_keys,
    produce_values,
    slot,
    tile,
    tile_count,
)
from .hopper_softmax import first_softmax, masked, next_softmax, rescale

THREADS = gl.constexpr(128)  # of a consumer
FIRST = gl.constexpr(0)
SECOND = gl.constexpr(1)


@gluon.jit
def _walk(
    q, p, o, top, sums, step, row, blocks, buffers, barriers, sizes, scale,
    STAGES: gl.constexpr, RIGHT: gl.constexpr, LAST: gl.constexpr,
):  # fmt: skip
    """The blocks of a tile after its first. P of the block before waits for its product."""
    q_smem, k_smem, _v_smem, _o_smem = buffers
    _q_full, k_full, k_empty, _v_full, v_empty = barriers
    queries, keys, _heads, _group, _tiles_m, _tiles, right = sizes
    BLOCK_N: gl.constexpr = k_smem.shape[3]
    O_LAYOUT: gl.constexpr = o.type.layout
    unmasked = keys // BLOCK_N
    if RIGHT:
        unmasked = gl.minimum(unmasked, gl.maximum(row + 1 + keys - queries + right, 0) // BLOCK_N)
    for j in range(1, blocks):
        p_op = gl.convert_layout(p.to(q_smem.dtype), gl.DotOperandLayout(0, O_LAYOUT, 2))
        s = issue_scores(q, step, buffers)
        # The compiler wants one barrier a turn for waits on one mbarrier: it costs nothing here.
        meet()
        wait_for_values(step - 1, buffers, barriers)
        o_next = issue_output(p_op, o, step - 1, buffers)
        s = warpgroup_mma_wait(1, [s])
        release(k_empty.index(slot(step, STAGES)))
        block = blocks - 1 - j
        if RIGHT:  # noqa: SIM102, a constant and a run-time value
            if block >= unmasked:
                s = masked(s, block * BLOCK_N, row, sizes, RIGHT)
        p, top, sums, alpha = next_softmax(s, top, sums, scale)
        step += 1
        # This wait stands here, not before its product, because it ends a basic block: without it
        # the assembler moves the softmax below the next wait, out of the product's shadow.
        more = True
        if LAST:
            more = j + 1 < blocks
        mbarrier.wait(k_full.index(slot(step, STAGES)), phase(step, STAGES), pred=more)
        o = warpgroup_mma_wait(0, [o_next])
        release(v_empty.index(slot(step - 2, STAGES)))
        o = rescale(o, alpha)
    return p, o, top, sums, step


@gluon.jit
def _consume(
    descs, buffers, barriers, sizes, lse, scale,
    STAGES: gl.constexpr, CONSUMERS: gl.constexpr, RIGHT: gl.constexpr, WHO: gl.constexpr,
):  # fmt: skip
    q_smem, k_smem, _v_smem, _o_smem = buffers
    q_full, k_full, k_empty, _v_full, v_empty = barriers
    _queries, keys, _heads, _group, _tiles_m, tiles, _right = sizes
    DTYPE: gl.constexpr = q_smem.dtype
    BLOCK_N: gl.constexpr = k_smem.shape[3]
    BLOCK_D: gl.constexpr = q_smem.shape[4]
    O_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_D, 16])
    P_LAYOUT: gl.constexpr = gl.DotOperandLayout(0, O_LAYOUT, 2)
    HEIGHT: gl.constexpr = ROWS * CONSUMERS
    no_output = gl.zeros([ROWS, BLOCK_D], gl.float32, layout=O_LAYOUT)

    count = tile_count(tiles, RIGHT)
    q = q_smem.index(WHO).reshape([ROWS, BLOCK_D])
    Q_STAGES: gl.constexpr = q_smem.shape[0] // CONSUMERS
    at, stride = first_place(sizes, RIGHT)
    begin, blocks = tile(0, at, sizes, HEIGHT, BLOCK_N, RIGHT)
    ragged = RIGHT | (keys % BLOCK_N != 0)  # a tile's first block needs a mask
    row = begin + WHO * ROWS
    mbarrier.wait(q_full.index(WHO), 0)
    mbarrier.wait(k_full.index(0), 0)
    s = issue_scores(q, 0, buffers)
    s = warpgroup_mma_wait(0, [s])
    release(k_empty.index(0))
    if ragged:
        s = masked(s, (blocks - 1) * BLOCK_N, row, sizes, RIGHT)
    p, top, sums = first_softmax(s, scale)
    o = no_output
    step = 1
    mbarrier.wait(k_full.index(slot(1, STAGES)), phase(1, STAGES), pred=(blocks > 1) | (count > 1))

    for turn in range(1, count):
        at_next = next_place(turn, at, stride, sizes, RIGHT)
        begin, blocks_next = tile(turn, at_next, sizes, HEIGHT, BLOCK_N, RIGHT)
        row_next = begin + WHO * ROWS
        p, o, top, sums, step = _walk(
            q, p, o, top, sums, step, row, blocks, buffers, barriers, sizes, scale,
            STAGES, RIGHT, False,
        )  # fmt: skip
        # The last product of this tile runs beside the first scores and softmax of the next.
        blocks = blocks_next
        p_op = gl.convert_layout(p.to(DTYPE), P_LAYOUT)
        place = (turn % Q_STAGES) * CONSUMERS + WHO
        q = q_smem.index(place).reshape([ROWS, BLOCK_D])
        if Q_STAGES == 2:
            mbarrier.wait(q_full.index(place), (turn // Q_STAGES) & 1)
            s = issue_scores(q, step, buffers)
            wait_for_values(step - 1, buffers, barriers)
            o_next = issue_output(p_op, o, step - 1, buffers)
            s = warpgroup_mma_wait(1, [s])
            release(k_empty.index(slot(step, STAGES)))
            if ragged:
                s = masked(s, (blocks - 1) * BLOCK_N, row_next, sizes, RIGHT)
            p, top_next, sums_next = first_softmax(s, scale)
        else:
            # Q is still on its way: the last product and the output go first.
            wait_for_values(step - 1, buffers, barriers)
            o_next = issue_output(p_op, o, step - 1, buffers)
            mbarrier.wait(q_full.index(place), (turn // Q_STAGES) & 1)
            s = issue_scores(q, step, buffers)
        factors = finish_rows(top, sums, at, row, sizes, lse)
        step += 1
        more = (blocks > 1) | (turn + 1 < count)
        if Q_STAGES == 2:
            mbarrier.wait(k_full.index(slot(step, STAGES)), phase(step, STAGES), pred=more)
            o = warpgroup_mma_wait(0, [o_next])
        else:
            o = warpgroup_mma_wait(1, [o_next])
        release(v_empty.index(slot(step - 2, STAGES)))
        write(o, factors, at, row, descs, buffers, WHO)
        if Q_STAGES == 1:
            s = warpgroup_mma_wait(0, [s])
            release(k_empty.index(slot(step - 1, STAGES)))
            if ragged:
                s = masked(s, (blocks - 1) * BLOCK_N, row_next, sizes, RIGHT)
            p, top_next, sums_next = first_softmax(s, scale)
            mbarrier.wait(k_full.index(slot(step, STAGES)), phase(step, STAGES), pred=more)
        o = no_output
        top = top_next
        sums = sums_next
        at = at_next
        row = row_next

    p, o, top, sums, step = _walk(
        q, p, o, top, sums, step, row, blocks, buffers, barriers, sizes, scale,
        STAGES, RIGHT, True,
    )  # fmt: skip
    p_op = gl.convert_layout(p.to(DTYPE), P_LAYOUT)
    wait_for_values(step - 1, buffers, barriers)
    o_next = issue_output(p_op, o, step - 1, buffers)
    factors = finish_rows(top, sums, at, row, sizes, lse)
    o = warpgroup_mma_wait(0, [o_next])
    write(o, factors, at, row, descs, buffers, WHO)
    tma.store_wait(0)


@gluon.constexpr_function
def _ring(count, block):
    return [count, *block]


# Sizes change from call to call: none of them may start another compilation.
SIZES = ("queries", "keys", "heads", "group", "tiles_m", "tiles", "right")


@gluon.jit(do_not_specialize=SIZES)
def forward_kernel(
    q_desc, k_desc, v_desc, o_desc, lse,
    queries, keys, heads, group, tiles_m, tiles, right, scale,
    STAGES: gl.constexpr, CONSUMERS: gl.constexpr, RIGHT: gl.constexpr, Q_STAGES: gl.constexpr,
):  # fmt: skip
    """Attention of whole (batch, head, seq, dim) tensors; see `hopper.launch` for the host side.

    Args:
        q_desc, k_desc, v_desc, o_desc: rank 4, blocks (1, 1, rows, dim); that of `o_desc` may be
            half as wide, which takes half the shared memory.
        lse: (batch, heads, queries) float32, contiguous.
        right: keys past the bottom-right diagonal that a row may see (RIGHT only).
        scale: softmax_scale * log2(e).
        Q_STAGES: 2 to fetch Q a tile ahead, where there is room.
        AHEAD: the schedule of `hopper_ahead`, with one K block more in its ring.
    """
    DTYPE: gl.constexpr = q_desc.dtype
    BLOCK_N: gl.constexpr = k_desc.block_shape[2]
    q_smem = gl.allocate_shared_memory(
        DTYPE, _ring(Q_STAGES * CONSUMERS, q_desc.block_shape), q_desc.layout
    )
    k_smem = gl.allocate_shared_memory(DTYPE, _ring(STAGES, k_desc.block_shape), k_desc.layout)
    v_smem = gl.allocate_shared_memory(DTYPE, _ring(STAGES, v_desc.block_shape), v_desc.layout)
    o_smem = gl.allocate_shared_memory(DTYPE, _ring(CONSUMERS, o_desc.block_shape), o_desc.layout)
    LAYOUT: gl.constexpr = mbarrier.MBarrierLayout()
    q_full = gl.allocate_shared_memory(gl.int64, [Q_STAGES * CONSUMERS, 1], LAYOUT)
    k_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], LAYOUT)
    k_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], LAYOUT)
    v_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], LAYOUT)
    v_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], LAYOUT)
    for c in gl.static_range(Q_STAGES * CONSUMERS):
        mbarrier.init(q_full.index(c), count=1)
    for s in gl.static_range(STAGES):
        mbarrier.init(k_full.index(s), count=1)
        mbarrier.init(k_empty.index(s), count=CONSUMERS * THREADS)
        mbarrier.init(v_full.index(s), count=1)
        mbarrier.init(v_empty.index(s), count=CONSUMERS * THREADS)

    descs = (q_desc, k_desc, v_desc, o_desc)
    buffers = (q_smem, k_smem, v_smem, o_smem)
    barriers = (q_full, k_full, k_empty, v_full, v_empty)
    sizes = (queries, keys, heads, group, tiles_m, tiles, right)
    # Constants travel in literal tuples: a variable would turn them into run-time values.
    if CONSUMERS == 1:
        gl.warp_specialize(
            [
                (_consume, (descs, buffers, barriers, sizes, lse, scale,
                            STAGES, CONSUMERS, RIGHT, FIRST)),
                (produce_keys,
                 (descs, buffers, barriers, sizes, BLOCK_N, STAGES, CONSUMERS, RIGHT)),
                (produce_values,
                 (descs, buffers, barriers, sizes, BLOCK_N, STAGES, CONSUMERS, RIGHT)),
            ],
            [1, 1],
            [24, 24],
        )  # fmt: skip
    else:
        gl.warp_specialize(
            [
                (_consume, (descs, buffers, barriers, sizes, lse, scale,
                            STAGES, CONSUMERS, RIGHT, FIRST)),
                (_consume, (descs, buffers, barriers, sizes, lse, scale,
                            STAGES, CONSUMERS, RIGHT, SECOND)),
                (produce_keys,
                 (descs, buffers, barriers, sizes, BLOCK_N, STAGES, CONSUMERS, RIGHT)),
                (produce_values,
                 (descs, buffers, barriers, sizes, BLOCK_N, STAGES, CONSUMERS, RIGHT)),
            ],
            [4, 1, 1],
            [240, 24, 24],
        )  # fmt: skip
