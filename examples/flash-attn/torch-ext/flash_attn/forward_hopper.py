"""Attention forward for sm_90 in Gluon: TMA loads, asynchronous wgmma, warp specialisation.

One warp (the producer) copies K and V blocks into rings in shared memory; CONSUMERS warpgroups own
64 query rows each. A consumer keeps two matrix products in flight, the scores of a block and the
output of the block before, and computes the softmax of the first while the second still runs. That
holds across tiles too: the scores of the next tile's first block run beside the last product of
    this one, so that a tile's end leaves no gap. With TURNS the
consumers issue their products in turn, so that one's softmax runs under the other's products (the
schedule of FlashAttention-3, arXiv 2407.08608).

Blocks are visited from the last key to the first, so that only the first few need a mask.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from .hopper_schedule import (
    ROWS,
    first_place,
    next_place,
    produce,
    store_block,
    tile,
    tile_count,
)
from .hopper_softmax import first_softmax, masked, next_softmax, rescale

FIRST = gl.constexpr(0)
SECOND = gl.constexpr(1)
THIRD = gl.constexpr(2)


@gluon.jit
def _issue_scores(q, step, buffers, barriers, STAGES: gl.constexpr, CONSUMERS: gl.constexpr,
                  TURNS: gl.constexpr, WHO: gl.constexpr):  # fmt: skip
    """Starts Q K^T of K block number `step`, which must have arrived."""
    _q_smem, k_smem, _v_smem, _o_smem = buffers
    _q_full, _k_full, _k_empty, _v_full, _v_empty, turns = barriers
    BLOCK_N: gl.constexpr = k_smem.shape[3]
    DIM: gl.constexpr = k_smem.shape[4]
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    zero = gl.zeros([ROWS, BLOCK_N], gl.float32, layout=LAYOUT)
    if TURNS:
        mbarrier.wait(turns.index(WHO), step & 1)
    k = k_smem.index(step % STAGES).reshape([BLOCK_N, DIM])
    s = warpgroup_mma(q, k.permute((1, 0)), zero, use_acc=False, is_async=True)
    if TURNS == 2:
        mbarrier.arrive(turns.index((WHO + 1) % CONSUMERS))
    return s


@gluon.jit
def _issue_output(p, o, step, buffers, barriers, STAGES: gl.constexpr):
    """Starts O += P V of V block number `step`, once it has arrived."""
    _q_smem, _k_smem, v_smem, _o_smem = buffers
    _q_full, _k_full, _k_empty, v_full, _v_empty, _turns = barriers
    mbarrier.wait(v_full.index(step % STAGES), (step // STAGES) & 1)
    v = v_smem.index(step % STAGES).reshape([v_smem.shape[3], v_smem.shape[4]])
    return warpgroup_mma(p, v, o, is_async=True)


@gluon.jit
def _walk(
    q, p, o, top, sums, step, row, blocks, buffers, barriers, sizes, scale,
    STAGES: gl.constexpr, CONSUMERS: gl.constexpr, RIGHT: gl.constexpr, TURNS: gl.constexpr,
    LAST: gl.constexpr, POLYNOMIALS: gl.constexpr, WHO: gl.constexpr,
):  # fmt: skip
    """The blocks of a tile after its first. P of the block before waits for its product."""
    q_smem, k_smem, _v_smem, _o_smem = buffers
    _q_full, k_full, k_empty, _v_full, v_empty, turns = barriers
    queries, keys, _heads, _group, _tiles_m, _tiles, right = sizes
    BLOCK_N: gl.constexpr = k_smem.shape[3]
    O_LAYOUT: gl.constexpr = o.type.layout
    unmasked = keys // BLOCK_N
    if RIGHT:
        unmasked = gl.minimum(unmasked, gl.maximum(row + 1 + keys - queries + right, 0) // BLOCK_N)
    for j in range(1, blocks):
        p_op = gl.convert_layout(p.to(q_smem.dtype), gl.DotOperandLayout(0, O_LAYOUT, 2))
        s = _issue_scores(q, step, buffers, barriers, STAGES, CONSUMERS, TURNS, WHO)
        o_next = _issue_output(p_op, o, step - 1, buffers, barriers, STAGES)
        if TURNS == 1:
            mbarrier.arrive(turns.index((WHO + 1) % CONSUMERS))
        s = warpgroup_mma_wait(1, [s])
        mbarrier.arrive(k_empty.index(step % STAGES))
        block = blocks - 1 - j
        if RIGHT:  # noqa: SIM102, a constant and a run-time value
            if block >= unmasked:
                s = masked(s, block * BLOCK_N, row, sizes, RIGHT)
        p, top, sums, alpha = next_softmax(s, top, sums, scale, POLYNOMIALS)
        step += 1
        # This wait stands here, not before its product, because it ends a basic block: without it
        # the assembler moves the softmax below the next wait, out of the product's shadow.
        more = True
        if LAST:
            more = j + 1 < blocks
        mbarrier.wait(k_full.index(step % STAGES), (step // STAGES) & 1, pred=more)
        o = warpgroup_mma_wait(0, [o_next])
        mbarrier.arrive(v_empty.index((step - 2) % STAGES))
        o = rescale(o, alpha)
    return p, o, top, sums, step


@gluon.jit
def _finish_rows(top, sums, at, row, sizes, lse, scale):
    """Stores the log-sum-exp of 64 rows; returns the factors that normalise them. A row that saw
    no key has no sum: it gets -inf, and 0 for output. Needs no product, so it runs beside one."""
    queries, _keys, heads, _group, _tiles_m, _tiles, _right = sizes
    _place, head, batch = at
    total = gl.convert_layout(gl.sum(sums, 1), top.type.layout)
    seen = total > 0.0
    total = gl.where(seen, total, 1.0)
    rows = row + gl.arange(0, ROWS, layout=total.type.layout)
    log_sum = gl.where(seen, top * scale + gl.log2(total), float("-inf")) * 0.6931471805599453
    gl.store(lse + (batch * heads + head).to(gl.int64) * queries + rows, log_sum, rows < queries)
    return 1.0 / total


@gluon.jit
def _write(
    o, factors, at, row, descs, buffers, WHO: gl.constexpr
):  # fmt: skip
    """Normalises and stores 64 rows of output through shared memory, in one piece or in halves."""
    _q_desc, _k_desc, _v_desc, o_desc = descs
    _q_smem, _k_smem, _v_smem, o_smem = buffers
    _place, head, batch = at
    LAYOUT: gl.constexpr = o.type.layout
    BLOCK_D: gl.constexpr = o.shape[1]
    o = (o * gl.convert_layout(factors, gl.SliceLayout(1, LAYOUT))[:, None]).to(o_desc.dtype)
    staged = o_smem.index(WHO)
    tma.store_wait(0)
    if staged.shape[3] == BLOCK_D:
        staged.reshape([ROWS, BLOCK_D]).store(o)
        fence_async_shared()
        store_block(o_desc, [batch, head, row, 0], staged)
    else:
        left, right = o.reshape([ROWS, 2, BLOCK_D // 2]).permute((0, 2, 1)).split()
        staged.reshape([ROWS, BLOCK_D // 2]).store(left)
        fence_async_shared()
        store_block(o_desc, [batch, head, row, 0], staged)
        tma.store_wait(0)
        staged.reshape([ROWS, BLOCK_D // 2]).store(right)
        fence_async_shared()
        store_block(o_desc, [batch, head, row, BLOCK_D // 2], staged)


@gluon.jit
def _consume(
    descs, buffers, barriers, sizes, lse, scale,
    STAGES: gl.constexpr, CONSUMERS: gl.constexpr, RIGHT: gl.constexpr,
    TURNS: gl.constexpr, POLYNOMIALS: gl.constexpr, WHO: gl.constexpr,
):  # fmt: skip
    q_smem, k_smem, _v_smem, _o_smem = buffers
    q_full, k_full, k_empty, _v_full, v_empty, turns = barriers
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
    s = _issue_scores(q, 0, buffers, barriers, STAGES, CONSUMERS, TURNS, WHO)
    if TURNS == 1:
        mbarrier.arrive(turns.index((WHO + 1) % CONSUMERS))
    s = warpgroup_mma_wait(0, [s])
    mbarrier.arrive(k_empty.index(0))
    if ragged:
        s = masked(s, (blocks - 1) * BLOCK_N, row, sizes, RIGHT)
    p, top, sums = first_softmax(s, scale, POLYNOMIALS)
    o = no_output
    step = 1
    mbarrier.wait(k_full.index(1 % STAGES), (1 // STAGES) & 1, pred=(blocks > 1) | (count > 1))

    for turn in range(1, count):
        at_next = next_place(turn, at, stride, sizes, RIGHT)
        begin, blocks_next = tile(turn, at_next, sizes, HEIGHT, BLOCK_N, RIGHT)
        row_next = begin + WHO * ROWS
        p, o, top, sums, step = _walk(
            q, p, o, top, sums, step, row, blocks, buffers, barriers, sizes, scale,
            STAGES, CONSUMERS, RIGHT, TURNS, False, POLYNOMIALS, WHO,
        )  # fmt: skip
        # The last product of this tile runs beside the first scores and softmax of the next.
        blocks = blocks_next
        p_op = gl.convert_layout(p.to(DTYPE), P_LAYOUT)
        place = (turn % Q_STAGES) * CONSUMERS + WHO
        q = q_smem.index(place).reshape([ROWS, BLOCK_D])
        if Q_STAGES == 2:
            mbarrier.wait(q_full.index(place), (turn // Q_STAGES) & 1)
            s = _issue_scores(q, step, buffers, barriers, STAGES, CONSUMERS, TURNS, WHO)
            o_next = _issue_output(p_op, o, step - 1, buffers, barriers, STAGES)
            if TURNS == 1:
                mbarrier.arrive(turns.index((WHO + 1) % CONSUMERS))
            s = warpgroup_mma_wait(1, [s])
            mbarrier.arrive(k_empty.index(step % STAGES))
            if ragged:
                s = masked(s, (blocks - 1) * BLOCK_N, row_next, sizes, RIGHT)
            p, top_next, sums_next = first_softmax(s, scale, POLYNOMIALS)
        else:
            # Q is still on its way: the last product and the output go first.
            o_next = _issue_output(p_op, o, step - 1, buffers, barriers, STAGES)
            mbarrier.wait(q_full.index(place), (turn // Q_STAGES) & 1)
            s = _issue_scores(q, step, buffers, barriers, STAGES, CONSUMERS, TURNS, WHO)
            if TURNS == 1:
                mbarrier.arrive(turns.index((WHO + 1) % CONSUMERS))
        factors = _finish_rows(top, sums, at, row, sizes, lse, scale)
        step += 1
        more = (blocks > 1) | (turn + 1 < count)
        if Q_STAGES == 2:
            mbarrier.wait(k_full.index(step % STAGES), (step // STAGES) & 1, pred=more)
            o = warpgroup_mma_wait(0, [o_next])
        else:
            o = warpgroup_mma_wait(1, [o_next])
        mbarrier.arrive(v_empty.index((step - 2) % STAGES))
        _write(o, factors, at, row, descs, buffers, WHO)
        if Q_STAGES == 1:
            s = warpgroup_mma_wait(0, [s])
            mbarrier.arrive(k_empty.index((step - 1) % STAGES))
            if ragged:
                s = masked(s, (blocks - 1) * BLOCK_N, row_next, sizes, RIGHT)
            p, top_next, sums_next = first_softmax(s, scale, POLYNOMIALS)
            mbarrier.wait(k_full.index(step % STAGES), (step // STAGES) & 1, pred=more)
        o = no_output
        top = top_next
        sums = sums_next
        at = at_next
        row = row_next

    p, o, top, sums, step = _walk(
        q, p, o, top, sums, step, row, blocks, buffers, barriers, sizes, scale,
        STAGES, CONSUMERS, RIGHT, TURNS, True, POLYNOMIALS, WHO,
    )  # fmt: skip
    p_op = gl.convert_layout(p.to(DTYPE), P_LAYOUT)
    o_next = _issue_output(p_op, o, step - 1, buffers, barriers, STAGES)
    factors = _finish_rows(top, sums, at, row, sizes, lse, scale)
    o = warpgroup_mma_wait(0, [o_next])
    _write(o, factors, at, row, descs, buffers, WHO)
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
    STAGES: gl.constexpr, CONSUMERS: gl.constexpr, RIGHT: gl.constexpr, TURNS: gl.constexpr,
    Q_STAGES: gl.constexpr, REGISTERS: gl.constexpr, POLYNOMIALS: gl.constexpr,
):  # fmt: skip
    """Attention of whole (batch, head, seq, dim) tensors; see `hopper.launch` for the host side.

    Args:
        q_desc, k_desc, v_desc, o_desc: rank 4, blocks (1, 1, rows, dim); that of `o_desc` may be
            half as wide, which takes half the shared memory.
        lse: (batch, heads, queries) float32, contiguous.
        right: keys past the bottom-right diagonal that a row may see (RIGHT only).
        scale: softmax_scale * log2(e).
        TURNS: 0, or 1: hand over after both products, or 2: after the first.
        Q_STAGES: 2 to fetch Q a tile ahead, where there is room.
        REGISTERS: a thread's, of the consumers.
        POLYNOMIALS: how many of eight exponentials go to the FMA units.
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
    turns = gl.allocate_shared_memory(gl.int64, [CONSUMERS, 1], LAYOUT)
    k_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], LAYOUT)
    k_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], LAYOUT)
    v_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], LAYOUT)
    v_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], LAYOUT)
    for c in gl.static_range(Q_STAGES * CONSUMERS):
        mbarrier.init(q_full.index(c), count=1)
    for c in gl.static_range(CONSUMERS):
        mbarrier.init(turns.index(c), count=1)
    for s in gl.static_range(STAGES):
        mbarrier.init(k_full.index(s), count=1)
        mbarrier.init(k_empty.index(s), count=CONSUMERS)
        mbarrier.init(v_full.index(s), count=1)
        mbarrier.init(v_empty.index(s), count=CONSUMERS)
    if TURNS:
        mbarrier.arrive(turns.index(0))

    descs = (q_desc, k_desc, v_desc, o_desc)
    buffers = (q_smem, k_smem, v_smem, o_smem)
    barriers = (q_full, k_full, k_empty, v_full, v_empty, turns)
    sizes = (queries, keys, heads, group, tiles_m, tiles, right)
    # Constants travel in literal tuples: a variable would turn them into run-time values.
    if CONSUMERS == 1:
        gl.warp_specialize(
            [
                (_consume, (descs, buffers, barriers, sizes, lse, scale,
                            STAGES, CONSUMERS, RIGHT, TURNS, POLYNOMIALS, FIRST)),
                (produce, (descs, buffers, barriers, sizes, BLOCK_N, STAGES, CONSUMERS, RIGHT)),
            ],
            [1],
            [24],
        )  # fmt: skip
    elif CONSUMERS == 2:
        gl.warp_specialize(
            [
                (_consume, (descs, buffers, barriers, sizes, lse, scale,
                            STAGES, CONSUMERS, RIGHT, TURNS, POLYNOMIALS, FIRST)),
                (_consume, (descs, buffers, barriers, sizes, lse, scale,
                            STAGES, CONSUMERS, RIGHT, TURNS, POLYNOMIALS, SECOND)),
                (produce, (descs, buffers, barriers, sizes, BLOCK_N, STAGES, CONSUMERS, RIGHT)),
            ],
            [4, 1],
            [REGISTERS, 24],
        )  # fmt: skip
    else:
        gl.warp_specialize(
            [
                (_consume, (descs, buffers, barriers, sizes, lse, scale,
                            STAGES, CONSUMERS, RIGHT, TURNS, POLYNOMIALS, FIRST)),
                (_consume, (descs, buffers, barriers, sizes, lse, scale,
                            STAGES, CONSUMERS, RIGHT, TURNS, POLYNOMIALS, SECOND)),
                (_consume, (descs, buffers, barriers, sizes, lse, scale,
                            STAGES, CONSUMERS, RIGHT, TURNS, POLYNOMIALS, THIRD)),
                (produce, (descs, buffers, barriers, sizes, BLOCK_N, STAGES, CONSUMERS, RIGHT)),
            ],
            [4, 4, 1],
            [REGISTERS, REGISTERS, 24],
        )  # fmt: skip
