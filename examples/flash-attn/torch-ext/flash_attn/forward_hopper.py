"""Attention forward for sm_90 in Gluon: TMA loads, asynchronous wgmma, warp specialisation.

One warp (the producer) copies K and V blocks into rings in shared memory; CONSUMERS warpgroups own 64 query rows
each. A consumer keeps two matrix products in flight, the scores of a block and the output of the block before,
and computes the softmax of the first while the second still runs. That holds across tiles too: the scores of the
next tile's first block run beside the last product of this one, so that a tile's end leaves no gap. With TURNS the
consumers issue their products in turn, so that one's softmax runs under the other's products (the schedule of
FlashAttention-3, arXiv 2407.08608).

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

ROWS = gl.constexpr(64)  # query rows of a consumer: one wgmma is 64 rows tall
FIRST = gl.constexpr(0)
SECOND = gl.constexpr(1)
THIRD = gl.constexpr(2)


@gluon.jit
def _count(tiles, RIGHT: gl.constexpr):
    """How many tiles this program computes."""
    PAIR: gl.constexpr = 2 if RIGHT else 1
    mine = gl.cdiv(tiles // PAIR - gl.program_id(0), gl.num_programs(0))
    return mine * PAIR


@gluon.jit
def _tile(turn, sizes, HEIGHT: gl.constexpr, BLOCK_N: gl.constexpr, RIGHT: gl.constexpr):
    """The program's tile number `turn`: (batch, head, first row, blocks of keys that its rows may see, at least 1).

    The rows of one head are neighbours, in time too, so that they share K and V in L2. With a diagonal a program
    takes them in pairs, the longest with the shortest, which makes all pairs of a head equally long; `tiles_m` is
    even then, and a last tile past the end costs one block.
    """
    queries, keys, heads, _group, tiles_m, _tiles, right = sizes
    if RIGHT:
        number = (turn // 2) * gl.num_programs(0) + gl.program_id(0)
        half = tiles_m // 2
        place = number % half
        row = gl.where(turn % 2 == 0, tiles_m - 1 - place, place) * HEIGHT
        pair = number // half
        end = gl.minimum(keys, row + HEIGHT + keys - queries + right)
        end = gl.where(row < queries, end, 0)
    else:
        number = turn * gl.num_programs(0) + gl.program_id(0)
        row = (number % tiles_m) * HEIGHT
        pair = number // tiles_m
        end = keys
    return pair // heads, pair % heads, row, gl.maximum(gl.cdiv(end, BLOCK_N), 1)


@gluon.jit
def _load_q(
    turn, step, q_desc, q_smem, q_full, k_empty, batch, head, row, STAGES: gl.constexpr, CONSUMERS: gl.constexpr
):
    """Starts the copy of Q of tile number `turn`, while K block number `step` is the first of its tile.

    The buffer was last read with the last K block of an earlier tile: when that is free, so is the buffer.
    """
    Q_STAGES: gl.constexpr = q_smem.shape[0] // CONSUMERS
    last = step - 1
    mbarrier.wait(k_empty.index(last % STAGES), (last // STAGES) & 1, pred=step > 0)
    for c in gl.static_range(CONSUMERS):
        place = (turn % Q_STAGES) * CONSUMERS + c
        mbarrier.expect(q_full.index(place), q_desc.block_type.nbytes)
        tma.async_copy_global_to_shared(
            q_desc, [batch, head, row + c * ROWS, 0], q_full.index(place), q_smem.index(place)
        )


@gluon.jit
def _produce(
    descs, buffers, barriers, sizes,
    BLOCK_N: gl.constexpr, STAGES: gl.constexpr, CONSUMERS: gl.constexpr, RIGHT: gl.constexpr,
):  # fmt: skip
    q_desc, k_desc, v_desc, _o_desc = descs
    q_smem, k_smem, v_smem, _o_smem = buffers
    q_full, k_full, k_empty, v_full, v_empty, _turns = barriers
    _queries, _keys, _heads, group, _tiles_m, tiles, _right = sizes
    Q_STAGES: gl.constexpr = q_smem.shape[0] // CONSUMERS
    count = _count(tiles, RIGHT)
    step = 0
    for turn in range(count):
        batch, head, row, blocks = _tile(turn, sizes, ROWS * CONSUMERS, BLOCK_N, RIGHT)
        head_k = head // group
        for j in range(blocks):
            first = (blocks - 1 - j) * BLOCK_N
            slot = step % STAGES
            phase = ((step // STAGES) & 1) ^ 1
            mbarrier.wait(k_empty.index(slot), phase)
            mbarrier.expect(k_full.index(slot), k_desc.block_type.nbytes)
            tma.async_copy_global_to_shared(
                k_desc, [batch, head_k, first, 0], k_full.index(slot), k_smem.index(slot)
            )
            if (j == 0) & ((turn == 0) | (Q_STAGES == 1)):
                _load_q(turn, step, q_desc, q_smem, q_full, k_empty, batch, head, row, STAGES, CONSUMERS)
            mbarrier.wait(v_empty.index(slot), phase)
            mbarrier.expect(v_full.index(slot), v_desc.block_type.nbytes)
            tma.async_copy_global_to_shared(
                v_desc, [batch, head_k, first, 0], v_full.index(slot), v_smem.index(slot)
            )
            if Q_STAGES == 2:
                if (j == 0) & (turn + 1 < count):
                    batch_next, head_next, row_next, _ = _tile(
                        turn + 1, sizes, ROWS * CONSUMERS, BLOCK_N, RIGHT
                    )
                    _load_q(
                        turn + 1, step, q_desc, q_smem, q_full, k_empty, batch_next, head_next, row_next,
                        STAGES, CONSUMERS,
                    )  # fmt: skip
            step += 1


@gluon.jit
def _masked(s, first, row, sizes, RIGHT: gl.constexpr):
    """The scores of keys [first, first + BLOCK_N) for rows [row, row + 64), -inf where a row may not see a key."""
    queries, keys, _heads, _group, _tiles_m, _tiles, right = sizes
    LAYOUT: gl.constexpr = s.type.layout
    cols = first + gl.arange(0, s.shape[1], layout=gl.SliceLayout(0, LAYOUT))
    keep = (cols < keys)[None, :]
    if RIGHT:
        rows = row + gl.arange(0, s.shape[0], layout=gl.SliceLayout(1, LAYOUT))
        bound = gl.minimum(rows + (keys - queries + right), keys - 1)
        keep = cols[None, :] <= bound[:, None]
    return gl.where(keep, s, float("-inf"))


@gluon.jit
def _by_lane(x):
    """(rows, n) scores as (rows, 4, n / 32, 4, 2): the last but one counts the lanes that share a row.

    The other dimensions of a row lie in one thread. Reducing them in steps makes several short chains of
    dependent instructions where one reduction would make a single long one.
    """
    return x.reshape([ROWS, 4, x.shape[1] // 32, 4, 2])


@gluon.jit
def _row_max(s):
    top = gl.max(gl.max(gl.max(_by_lane(s), 2), 3), 1)
    return gl.convert_layout(gl.max(top, 1), gl.SliceLayout(1, s.type.layout))


@gluon.jit
def _lane_sums(p):
    """(rows, 4) sums of each lane's share of a row; the lanes are added once, at a tile's end."""
    return gl.sum(gl.sum(gl.sum(_by_lane(p), 2), 3), 1)


@gluon.jit
def _first_softmax(s, scale):
    """Of a tile's first block: (P, row references, sums of each lane)."""
    top = _row_max(s)
    safe = gl.where(top == float("-inf"), 0.0, top) * scale
    p = gl.exp2(s * scale - safe[:, None])
    return p, top, _lane_sums(p)


@gluon.jit
def _next_softmax(s, top, sums, scale):
    """Of a later block: (P, row references, sums of each lane, factor for what came before).

    The reference of a row need not be its maximum, only near it: it moves when the maximum has outgrown it by a
    factor of 2**8, so that what came before seldom needs a new scale. P stays below 2**8.
    """
    block_top = _row_max(s)
    new_top = gl.where((block_top - top) * scale > 8.0, block_top, top)
    new_top = gl.where(top == float("-inf"), block_top, new_top)
    safe = gl.where(new_top == float("-inf"), 0.0, new_top) * scale
    p = gl.exp2(s * scale - safe[:, None])
    alpha = gl.where(new_top == top, 1.0, gl.exp2(top * scale - safe))
    factor = gl.convert_layout(alpha, gl.SliceLayout(1, sums.type.layout))
    return p, new_top, sums * factor[:, None] + _lane_sums(p), alpha


@gluon.constexpr_function
def _rescale_assembly(count):
    """Multiplies a thread's `count` accumulators in place, unless no row of the warp has a factor other than 1."""
    lines = ["{", ".reg .pred p, q;"]
    lines += [f"setp.neu.f32 p, ${2 * count}, 0f3F800000;", f"setp.neu.f32 q, ${2 * count + 2}, 0f3F800000;"]
    lines += ["or.pred p, p, q;", "vote.sync.any.pred p, p, 0xffffffff;", "@!p bra.uni DONE;"]
    lines += [f"mul.f32 ${i}, ${i}, ${2 * count + i};" for i in range(count)]
    return "\n".join([*lines, "DONE:", "}"])


@gluon.constexpr_function
def _rescale_constraints(count):
    return ",".join(["=f"] * count + [str(i) for i in range(count)] + ["f"] * count)


@gluon.jit
def _rescale(o, alpha):
    LAYOUT: gl.constexpr = o.type.layout
    COUNT: gl.constexpr = o.shape[1] // 2  # elements of a thread: 64 rows on 128 threads
    factor, _ = gl.broadcast(gl.convert_layout(alpha, gl.SliceLayout(1, LAYOUT))[:, None], o)
    return gl.inline_asm_elementwise(
        _rescale_assembly(COUNT), _rescale_constraints(COUNT), [o, factor], gl.float32, False, COUNT
    )


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
    LAST: gl.constexpr, WHO: gl.constexpr,
):  # fmt: skip
    """The blocks of a tile after its first. On entry and exit P of the block before waits for its product."""
    q_smem, k_smem, _v_smem, _o_smem = buffers
    _q_full, k_full, k_empty, _v_full, v_empty, turns = barriers
    queries, keys, _heads, _group, _tiles_m, _tiles, right = sizes
    BLOCK_N: gl.constexpr = k_smem.shape[3]
    O_LAYOUT: gl.constexpr = o.type.layout
    unmasked = keys // BLOCK_N
    if RIGHT:
        unmasked = gl.minimum(
            unmasked, gl.maximum(row + 1 + keys - queries + right, 0) // BLOCK_N
        )
    for j in range(1, blocks):
        p_op = gl.convert_layout(p.to(q_smem.dtype), gl.DotOperandLayout(0, O_LAYOUT, 2))
        s = _issue_scores(q, step, buffers, barriers, STAGES, CONSUMERS, TURNS, WHO)
        o_next = _issue_output(p_op, o, step - 1, buffers, barriers, STAGES)
        if TURNS == 1:
            mbarrier.arrive(turns.index((WHO + 1) % CONSUMERS))
        s = warpgroup_mma_wait(1, [s])
        mbarrier.arrive(k_empty.index(step % STAGES))
        block = blocks - 1 - j
        if RIGHT:
            if block >= unmasked:
                s = _masked(s, block * BLOCK_N, row, sizes, RIGHT)
        p, top, sums, alpha = _next_softmax(s, top, sums, scale)
        step += 1
        # This wait stands here, not before its product, because it ends a basic block: without it the
        # assembler moves the softmax below the next wait, out of the product's shadow.
        more = True
        if LAST:
            more = j + 1 < blocks
        mbarrier.wait(k_full.index(step % STAGES), (step // STAGES) & 1, pred=more)
        o = warpgroup_mma_wait(0, [o_next])
        mbarrier.arrive(v_empty.index((step - 2) % STAGES))
        o = _rescale(o, alpha)
    return p, o, top, sums, step




@gluon.jit
def _write(
    o, top, sums, batch, head, row, descs, buffers, sizes, lse, out, o_b, o_h, o_s, scale,
    DIM: gl.constexpr, STAGED: gl.constexpr, WHO: gl.constexpr,
):  # fmt: skip
    """Normalises and stores 64 rows. A row that saw no key has no sum: it gets 0 and log-sum-exp -inf."""
    _q_desc, _k_desc, _v_desc, o_desc = descs
    _q_smem, _k_smem, _v_smem, o_smem = buffers
    queries, _keys, heads, _group, _tiles_m, _tiles, _right = sizes
    LAYOUT: gl.constexpr = o.type.layout
    BLOCK_D: gl.constexpr = o.shape[1]
    total = gl.convert_layout(gl.sum(sums, 1), top.type.layout)
    seen = total > 0.0
    total = gl.where(seen, total, 1.0)
    o = (o * gl.convert_layout(1.0 / total, gl.SliceLayout(1, LAYOUT))[:, None]).to(o_desc.dtype)
    if STAGED:
        staged = o_smem.index(WHO)
        tma.store_wait(0)
        staged.reshape([ROWS, BLOCK_D]).store(o)
        fence_async_shared()
        tma.async_copy_shared_to_global(o_desc, [batch, head, row, 0], staged)
    else:
        rows = row + gl.arange(0, ROWS, layout=gl.SliceLayout(1, LAYOUT))
        cols = gl.arange(0, BLOCK_D, layout=gl.SliceLayout(0, LAYOUT))
        base = out + batch.to(gl.int64) * o_b + head.to(gl.int64) * o_h
        keep = (rows < queries)[:, None] & (cols < DIM)[None, :]
        gl.store(base + (rows.to(gl.int64) * o_s)[:, None] + cols[None, :], o, keep)
    rows = row + gl.arange(0, ROWS, layout=total.type.layout)
    log_sum = gl.where(seen, top * scale + gl.log2(total), float("-inf")) * 0.6931471805599453
    gl.store(lse + (batch * heads + head).to(gl.int64) * queries + rows, log_sum, rows < queries)


@gluon.jit
def _consume(
    descs, buffers, barriers, sizes, lse, out, o_b, o_h, o_s, scale,
    DIM: gl.constexpr, STAGES: gl.constexpr, CONSUMERS: gl.constexpr, RIGHT: gl.constexpr, TURNS: gl.constexpr,
    STAGED: gl.constexpr, WHO: gl.constexpr,
):  # fmt: skip
    q_smem, k_smem, _v_smem, _o_smem = buffers
    q_full, k_full, k_empty, _v_full, v_empty, turns = barriers
    _queries, _keys, _heads, _group, _tiles_m, tiles, _right = sizes
    DTYPE: gl.constexpr = q_smem.dtype
    BLOCK_N: gl.constexpr = k_smem.shape[3]
    BLOCK_D: gl.constexpr = q_smem.shape[4]
    O_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_D, 16])
    P_LAYOUT: gl.constexpr = gl.DotOperandLayout(0, O_LAYOUT, 2)
    HEIGHT: gl.constexpr = ROWS * CONSUMERS
    no_output = gl.zeros([ROWS, BLOCK_D], gl.float32, layout=O_LAYOUT)

    count = _count(tiles, RIGHT)
    q = q_smem.index(WHO).reshape([ROWS, BLOCK_D])
    Q_STAGES: gl.constexpr = q_smem.shape[0] // CONSUMERS
    batch, head, begin, blocks = _tile(0, sizes, HEIGHT, BLOCK_N, RIGHT)
    row = begin + WHO * ROWS
    mbarrier.wait(q_full.index(WHO), 0)
    mbarrier.wait(k_full.index(0), 0)
    s = _issue_scores(q, 0, buffers, barriers, STAGES, CONSUMERS, TURNS, WHO)
    if TURNS == 1:
        mbarrier.arrive(turns.index((WHO + 1) % CONSUMERS))
    s = warpgroup_mma_wait(0, [s])
    mbarrier.arrive(k_empty.index(0))
    s = _masked(s, (blocks - 1) * BLOCK_N, row, sizes, RIGHT)
    p, top, sums = _first_softmax(s, scale)
    o = no_output
    step = 1
    mbarrier.wait(k_full.index(1 % STAGES), (1 // STAGES) & 1, pred=(blocks > 1) | (count > 1))

    for turn in range(1, count):
        p, o, top, sums, step = _walk(
            q, p, o, top, sums, step, row, blocks, buffers, barriers, sizes, scale,
            STAGES, CONSUMERS, RIGHT, TURNS, False, WHO,
        )  # fmt: skip
        # The last product of this tile runs beside the first scores and softmax of the next.
        batch_next, head_next, begin, blocks = _tile(turn, sizes, HEIGHT, BLOCK_N, RIGHT)
        row_next = begin + WHO * ROWS
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
            s = _masked(s, (blocks - 1) * BLOCK_N, row_next, sizes, RIGHT)
            p, top_next, sums_next = _first_softmax(s, scale)
        else:
            # Q is still on its way: the last product and the output go first.
            o_next = _issue_output(p_op, o, step - 1, buffers, barriers, STAGES)
            mbarrier.wait(q_full.index(place), (turn // Q_STAGES) & 1)
            s = _issue_scores(q, step, buffers, barriers, STAGES, CONSUMERS, TURNS, WHO)
            if TURNS == 1:
                mbarrier.arrive(turns.index((WHO + 1) % CONSUMERS))
        step += 1
        more = (blocks > 1) | (turn + 1 < count)
        if Q_STAGES == 2:
            mbarrier.wait(k_full.index(step % STAGES), (step // STAGES) & 1, pred=more)
            o = warpgroup_mma_wait(0, [o_next])
        else:
            o = warpgroup_mma_wait(1, [o_next])
        mbarrier.arrive(v_empty.index((step - 2) % STAGES))
        _write(
            o, top, sums, batch, head, row, descs, buffers, sizes, lse, out, o_b, o_h, o_s, scale,
            DIM, STAGED, WHO,
        )  # fmt: skip
        if Q_STAGES == 1:
            s = warpgroup_mma_wait(0, [s])
            mbarrier.arrive(k_empty.index((step - 1) % STAGES))
            s = _masked(s, (blocks - 1) * BLOCK_N, row_next, sizes, RIGHT)
            p, top_next, sums_next = _first_softmax(s, scale)
            mbarrier.wait(k_full.index(step % STAGES), (step // STAGES) & 1, pred=more)
        o = no_output
        top = top_next
        sums = sums_next
        batch = batch_next
        head = head_next
        row = row_next

    p, o, top, sums, step = _walk(
        q, p, o, top, sums, step, row, blocks, buffers, barriers, sizes, scale,
        STAGES, CONSUMERS, RIGHT, TURNS, True, WHO,
    )  # fmt: skip
    p_op = gl.convert_layout(p.to(DTYPE), P_LAYOUT)
    o_next = _issue_output(p_op, o, step - 1, buffers, barriers, STAGES)
    o = warpgroup_mma_wait(0, [o_next])
    _write(
        o, top, sums, batch, head, row, descs, buffers, sizes, lse, out, o_b, o_h, o_s, scale,
        DIM, STAGED, WHO,
    )  # fmt: skip
    if STAGED:
        tma.store_wait(0)


# Sizes change from call to call: none of them may start another compilation.
SIZES = ("queries", "keys", "heads", "group", "tiles_m", "tiles", "right")


@gluon.jit(do_not_specialize=SIZES)
def forward_kernel(
    q_desc, k_desc, v_desc, o_desc, lse, out, o_b, o_h, o_s,
    queries, keys, heads, group, tiles_m, tiles, right, scale,
    DIM: gl.constexpr, STAGES: gl.constexpr, CONSUMERS: gl.constexpr, RIGHT: gl.constexpr, TURNS: gl.constexpr,
    Q_STAGES: gl.constexpr, STAGED: gl.constexpr, REGISTERS: gl.constexpr,
):  # fmt: skip
    """Attention of whole (batch, head, seq, dim) tensors; see `hopper.launch` for the host side.

    Args:
        q_desc, k_desc, v_desc, o_desc: rank 4, blocks (1, 1, rows, dim).
        lse: (batch, heads, queries) float32, contiguous.
        out, o_b, o_h, o_s: the output again as a pointer with strides, used where it is not STAGED.
        right: keys past the bottom-right diagonal that a row may see (RIGHT only).
        scale: softmax_scale * log2(e).
        TURNS: 0, or 1: hand over after both products, or 2: after the first.
        Q_STAGES: 2 to fetch Q a tile ahead, where there is room.
        STAGED: store the output through shared memory of its own, where there is room.
        REGISTERS: a thread's, of the consumers.
    """
    DTYPE: gl.constexpr = q_desc.dtype
    BLOCK_N: gl.constexpr = k_desc.block_shape[2]
    q_smem = gl.allocate_shared_memory(DTYPE, [Q_STAGES * CONSUMERS] + q_desc.block_shape, q_desc.layout)
    k_smem = gl.allocate_shared_memory(DTYPE, [STAGES] + k_desc.block_shape, k_desc.layout)
    v_smem = gl.allocate_shared_memory(DTYPE, [STAGES] + v_desc.block_shape, v_desc.layout)
    if STAGED:
        o_smem = gl.allocate_shared_memory(DTYPE, [CONSUMERS] + o_desc.block_shape, o_desc.layout)
    else:
        o_smem = q_smem
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
                (_consume, (descs, buffers, barriers, sizes, lse, out, o_b, o_h, o_s, scale,
                            DIM, STAGES, CONSUMERS, RIGHT, TURNS, STAGED, FIRST)),
                (_produce, (descs, buffers, barriers, sizes, BLOCK_N, STAGES, CONSUMERS, RIGHT)),
            ],
            [1],
            [24],
        )  # fmt: skip
    elif CONSUMERS == 2:
        gl.warp_specialize(
            [
                (_consume, (descs, buffers, barriers, sizes, lse, out, o_b, o_h, o_s, scale,
                            DIM, STAGES, CONSUMERS, RIGHT, TURNS, STAGED, FIRST)),
                (_consume, (descs, buffers, barriers, sizes, lse, out, o_b, o_h, o_s, scale,
                            DIM, STAGES, CONSUMERS, RIGHT, TURNS, STAGED, SECOND)),
                (_produce, (descs, buffers, barriers, sizes, BLOCK_N, STAGES, CONSUMERS, RIGHT)),
            ],
            [4, 1],
            [REGISTERS, 24],
        )  # fmt: skip
    else:
        gl.warp_specialize(
            [
                (_consume, (descs, buffers, barriers, sizes, lse, out, o_b, o_h, o_s, scale,
                            DIM, STAGES, CONSUMERS, RIGHT, TURNS, STAGED, FIRST)),
                (_consume, (descs, buffers, barriers, sizes, lse, out, o_b, o_h, o_s, scale,
                            DIM, STAGES, CONSUMERS, RIGHT, TURNS, STAGED, SECOND)),
                (_consume, (descs, buffers, barriers, sizes, lse, out, o_b, o_h, o_s, scale,
                            DIM, STAGES, CONSUMERS, RIGHT, TURNS, STAGED, THIRD)),
                (_produce, (descs, buffers, barriers, sizes, BLOCK_N, STAGES, CONSUMERS, RIGHT)),
            ],
            [4, 4, 1],
            [REGISTERS, REGISTERS, 24],
        )  # fmt: skip
