"""Attention forward for sm_90 in Gluon: TMA loads, asynchronous wgmma, warp specialisation.

One program stays on each SM and walks over query tiles. One warp (the producer) copies K and V blocks into a
ring in shared memory; CONSUMERS warpgroups own 64 query rows each. A consumer keeps two matrix products in
flight: the scores of block j and the output of block j-1, and computes the softmax of block j while the second
still runs. With two consumers, PINGPONG makes them take turns at issuing, so that one's softmax runs under the
other's products (the schedule of FlashAttention-3, arXiv 2407.08608).

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

FIRST = gl.constexpr(0)
SECOND = gl.constexpr(1)
THIRD = gl.constexpr(2)
ROWS = gl.constexpr(64)  # query rows of a consumer: one wgmma is 64 rows tall


@gluon.jit
def _tile(tile, tiles_m, heads, chunk, HEAVY_FIRST: gl.constexpr):
    """Number of a tile -> (batch, head, block of rows).

    Full attention walks the rows of one head first: neighbours share K and V in L2. With a diagonal, `chunk`
    heads are walked together, longest rows first, so that the short tiles fill the gaps at the end.
    """
    if HEAVY_FIRST:
        per_chunk = chunk * tiles_m
        within = tile % per_chunk
        row = tiles_m - 1 - within // chunk
        pair = (tile // per_chunk) * chunk + within % chunk
    else:
        row = tile % tiles_m
        pair = tile // tiles_m
    return pair // heads, pair % heads, row


@gluon.jit
def _last_key(row_end, queries, keys, right, RIGHT: gl.constexpr):
    """One past the last key that any row before `row_end` may see."""
    end = keys
    if RIGHT:
        end = gl.minimum(keys, gl.maximum(row_end + keys - queries + right, 0))
    return end


@gluon.jit
def _produce(
    descs, buffers, barriers, sizes,
    BLOCK_N: gl.constexpr, STAGES: gl.constexpr, CONSUMERS: gl.constexpr, RIGHT: gl.constexpr,
):  # fmt: skip
    q_desc, k_desc, v_desc, _o_desc = descs
    q_smem, k_smem, v_smem, _o_smem = buffers
    q_full, q_empty, k_full, k_empty, v_full, v_empty, _turns = barriers
    queries, keys, heads, group, tiles_m, tiles, chunk, right = sizes
    step = 0
    turn = 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        batch, head, row = _tile(tile, tiles_m, heads, chunk, RIGHT)
        start = row * ROWS * CONSUMERS
        head_k = head // group
        blocks = gl.cdiv(_last_key(start + ROWS * CONSUMERS, queries, keys, right, RIGHT), BLOCK_N)
        for c in gl.static_range(CONSUMERS):
            mbarrier.wait(q_empty.index(c), (turn & 1) ^ 1)
            mbarrier.expect(q_full.index(c), q_desc.block_type.nbytes)
            tma.async_copy_global_to_shared(
                q_desc, [batch, head, start + c * ROWS, 0], q_full.index(c), q_smem.index(c)
            )
        for j in range(blocks):
            first = (blocks - 1 - j) * BLOCK_N
            slot = step % STAGES
            phase = ((step // STAGES) & 1) ^ 1
            mbarrier.wait(k_empty.index(slot), phase)
            mbarrier.expect(k_full.index(slot), k_desc.block_type.nbytes)
            tma.async_copy_global_to_shared(
                k_desc, [batch, head_k, first, 0], k_full.index(slot), k_smem.index(slot)
            )
            mbarrier.wait(v_empty.index(slot), phase)
            mbarrier.expect(v_full.index(slot), v_desc.block_type.nbytes)
            tma.async_copy_global_to_shared(
                v_desc, [batch, head_k, first, 0], v_full.index(slot), v_smem.index(slot)
            )
            step += 1
        turn += 1


@gluon.jit
def _masked(s, first, start, queries, keys, right, RIGHT: gl.constexpr, LAYOUT: gl.constexpr):
    cols = first + gl.arange(0, s.shape[1], layout=gl.SliceLayout(0, LAYOUT))
    end = keys
    keep = (cols < end)[None, :]
    if RIGHT:
        rows = start + gl.arange(0, s.shape[0], layout=gl.SliceLayout(1, LAYOUT))
        bound = gl.minimum(rows + (keys - queries + right), keys - 1)
        keep = cols[None, :] <= bound[:, None]
    return gl.where(keep, s, float("-inf"))


@gluon.jit
def _softmax(s, top, total, scale):
    """One online-softmax step: (P, new row maxima, new row sums, factor for what came before)."""
    new_top = gl.maximum(top, gl.max(s, 1))
    safe = gl.where(new_top == float("-inf"), 0.0, new_top) * scale
    alpha = gl.exp2(top * scale - safe)
    p = gl.exp2(s * scale - safe[:, None])
    return p, new_top, total * alpha + gl.sum(p, 1), alpha


@gluon.jit
def _consume(
    descs, buffers, barriers, sizes, lse, scale,
    BLOCK_N: gl.constexpr, STAGES: gl.constexpr, CONSUMERS: gl.constexpr, RIGHT: gl.constexpr,
    PINGPONG: gl.constexpr, SHARE_Q: gl.constexpr, WHO: gl.constexpr,
):  # fmt: skip
    _q_desc, _k_desc, _v_desc, o_desc = descs
    q_smem, k_smem, v_smem, o_smem = buffers
    q_full, q_empty, k_full, k_empty, v_full, v_empty, turns = barriers
    queries, keys, heads, _group, tiles_m, tiles, chunk, right = sizes
    DTYPE: gl.constexpr = q_smem.dtype
    DIM: gl.constexpr = q_smem.shape[4]
    S_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    O_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, DIM, 16])
    P_LAYOUT: gl.constexpr = gl.DotOperandLayout(0, O_LAYOUT, 2)
    S_ROWS: gl.constexpr = gl.SliceLayout(1, S_LAYOUT)
    O_ROWS: gl.constexpr = gl.SliceLayout(1, O_LAYOUT)
    zero_s = gl.zeros([ROWS, BLOCK_N], gl.float32, layout=S_LAYOUT)

    step = 0
    turn = 0
    issued = 0
    q = q_smem.index(WHO).reshape([ROWS, DIM])
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        batch, head, row = _tile(tile, tiles_m, heads, chunk, RIGHT)
        begin = row * ROWS * CONSUMERS
        start = begin + WHO * ROWS
        blocks = gl.cdiv(_last_key(begin + ROWS * CONSUMERS, queries, keys, right, RIGHT), BLOCK_N)
        unmasked = keys // BLOCK_N
        if RIGHT:
            unmasked = gl.minimum(
                unmasked, gl.maximum(start + 1 + keys - queries + right, 0) // BLOCK_N
            )
        top = gl.full([ROWS], float("-inf"), gl.float32, layout=S_ROWS)
        total = gl.zeros([ROWS], gl.float32, layout=S_ROWS)
        o = gl.zeros([ROWS, DIM], gl.float32, layout=O_LAYOUT)
        mbarrier.wait(q_full.index(WHO), turn & 1)
        if blocks > 0:
            slot = step % STAGES
            mbarrier.wait(k_full.index(slot), (step // STAGES) & 1)
            if PINGPONG:
                mbarrier.wait(turns.index(WHO), issued & 1)
            k = k_smem.index(slot).reshape([BLOCK_N, DIM])
            s = warpgroup_mma(q, k.permute((1, 0)), zero_s, use_acc=False, is_async=True)
            if PINGPONG:
                mbarrier.arrive(turns.index((WHO + 1) % CONSUMERS))
                issued += 1
            s = warpgroup_mma_wait(0, [s])
            mbarrier.arrive(k_empty.index(slot))
            s = _masked(s, (blocks - 1) * BLOCK_N, start, queries, keys, right, RIGHT, S_LAYOUT)
            p, top, total, alpha = _softmax(s, top, total, scale)
            p_op = gl.convert_layout(p.to(DTYPE), P_LAYOUT)
            behind = slot
            behind_phase = (step // STAGES) & 1
            step += 1
            slot = step % STAGES
            phase = (step // STAGES) & 1
            mbarrier.wait(k_full.index(slot), phase, pred=blocks > 1)
            for j in range(1, blocks):
                if PINGPONG:
                    mbarrier.wait(turns.index(WHO), issued & 1)
                k = k_smem.index(slot).reshape([BLOCK_N, DIM])
                s = warpgroup_mma(q, k.permute((1, 0)), zero_s, use_acc=False, is_async=True)
                mbarrier.wait(v_full.index(behind), behind_phase)
                v = v_smem.index(behind).reshape([BLOCK_N, DIM])
                o_next = warpgroup_mma(p_op, v, o, is_async=True)
                if PINGPONG:
                    mbarrier.arrive(turns.index((WHO + 1) % CONSUMERS))
                    issued += 1
                s = warpgroup_mma_wait(1, [s])
                mbarrier.arrive(k_empty.index(slot))
                block = blocks - 1 - j
                if RIGHT:
                    if block >= unmasked:
                        s = _masked(s, block * BLOCK_N, start, queries, keys, right, RIGHT, S_LAYOUT)
                p, top, total, alpha = _softmax(s, top, total, scale)
                empty = v_empty.index(behind)
                behind = slot
                behind_phase = phase
                step += 1
                slot = step % STAGES
                phase = (step // STAGES) & 1
                # This wait stands here, not before its product, because it ends a basic block: without it
                # the assembler moves the softmax below the next wait, out of the product's shadow.
                mbarrier.wait(k_full.index(slot), phase, pred=j + 1 < blocks)
                o = warpgroup_mma_wait(0, [o_next])
                mbarrier.arrive(empty)
                o = o * gl.convert_layout(alpha, O_ROWS)[:, None]
                p_op = gl.convert_layout(p.to(DTYPE), P_LAYOUT)
            mbarrier.wait(v_full.index(behind), behind_phase)
            v = v_smem.index(behind).reshape([BLOCK_N, DIM])
            o_next = warpgroup_mma(p_op, v, o, is_async=True)
            o = warpgroup_mma_wait(0, [o_next])
            mbarrier.arrive(v_empty.index(behind))
        # A row that saw no key keeps total == 0: its output is 0 and its log-sum-exp -inf.
        seen = total > 0.0
        inverse = gl.where(seen, 1.0 / total, 0.0)
        o = o * gl.convert_layout(inverse, O_ROWS)[:, None]
        out = o_smem.index(WHO)
        if not SHARE_Q:
            mbarrier.arrive(q_empty.index(WHO))
            tma.store_wait(0)
        out.reshape([ROWS, DIM]).store(o.to(DTYPE))
        fence_async_shared()
        tma.async_copy_shared_to_global(o_desc, [batch, head, start, 0], out)
        rows = start + gl.arange(0, ROWS, layout=S_ROWS)
        log_sum = gl.where(seen, top * scale + gl.log2(total), float("-inf")) * 0.6931471805599453
        gl.store(lse + (batch * heads + head).to(gl.int64) * queries + rows, log_sum, rows < queries)
        if SHARE_Q:
            tma.store_wait(0)
            mbarrier.arrive(q_empty.index(WHO))
        turn += 1
    tma.store_wait(0)


# Sizes change from call to call: none of them may start another compilation.
SIZES = ("queries", "keys", "heads", "group", "tiles_m", "tiles", "chunk", "right")


@gluon.jit(do_not_specialize=SIZES)
def forward_kernel(
    q_desc, k_desc, v_desc, o_desc, lse, queries, keys, heads, group, tiles_m, tiles, chunk, right, scale,
    BLOCK_N: gl.constexpr, STAGES: gl.constexpr, CONSUMERS: gl.constexpr, RIGHT: gl.constexpr,
    PINGPONG: gl.constexpr, SHARE_Q: gl.constexpr, REGISTERS: gl.constexpr,
):  # fmt: skip
    """Attention of whole (batch, head, seq, dim) tensors; see `forward.hopper` for the host side.

    Descriptors are rank 4 with blocks (1, 1, rows, dim). `lse` is (batch, heads, queries) float32, contiguous.
    `scale` is softmax_scale * log2(e). `right` counts keys past the bottom-right diagonal that a row may see
    (RIGHT only). SHARE_Q writes the output through Q's shared memory, for head dims where there is no room.
    """
    DTYPE: gl.constexpr = q_desc.dtype
    q_smem = gl.allocate_shared_memory(DTYPE, [CONSUMERS] + q_desc.block_shape, q_desc.layout)
    k_smem = gl.allocate_shared_memory(DTYPE, [STAGES] + k_desc.block_shape, k_desc.layout)
    v_smem = gl.allocate_shared_memory(DTYPE, [STAGES] + v_desc.block_shape, v_desc.layout)
    if SHARE_Q:
        o_smem = q_smem
    else:
        o_smem = gl.allocate_shared_memory(DTYPE, [CONSUMERS] + o_desc.block_shape, o_desc.layout)
    LAYOUT: gl.constexpr = mbarrier.MBarrierLayout()
    q_full = gl.allocate_shared_memory(gl.int64, [CONSUMERS, 1], LAYOUT)
    q_empty = gl.allocate_shared_memory(gl.int64, [CONSUMERS, 1], LAYOUT)
    turns = gl.allocate_shared_memory(gl.int64, [CONSUMERS, 1], LAYOUT)
    k_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], LAYOUT)
    k_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], LAYOUT)
    v_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], LAYOUT)
    v_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], LAYOUT)
    for c in gl.static_range(CONSUMERS):
        mbarrier.init(q_full.index(c), count=1)
        mbarrier.init(q_empty.index(c), count=1)
        mbarrier.init(turns.index(c), count=1)
    for s in gl.static_range(STAGES):
        mbarrier.init(k_full.index(s), count=1)
        mbarrier.init(k_empty.index(s), count=CONSUMERS)
        mbarrier.init(v_full.index(s), count=1)
        mbarrier.init(v_empty.index(s), count=CONSUMERS)
    if PINGPONG:
        mbarrier.arrive(turns.index(0))

    descs = (q_desc, k_desc, v_desc, o_desc)
    buffers = (q_smem, k_smem, v_smem, o_smem)
    barriers = (q_full, q_empty, k_full, k_empty, v_full, v_empty, turns)
    sizes = (queries, keys, heads, group, tiles_m, tiles, chunk, right)
    # Constants travel in literal tuples: a variable would turn them into run-time values.
    if CONSUMERS == 1:
        gl.warp_specialize(
            [
                (_consume, (descs, buffers, barriers, sizes, lse, scale, BLOCK_N, STAGES, CONSUMERS, RIGHT, PINGPONG, SHARE_Q, FIRST)),
                (_produce, (descs, buffers, barriers, sizes, BLOCK_N, STAGES, CONSUMERS, RIGHT)),
            ],
            [1],
            [24],
        )
    elif CONSUMERS == 2:
        gl.warp_specialize(
            [
                (_consume, (descs, buffers, barriers, sizes, lse, scale, BLOCK_N, STAGES, CONSUMERS, RIGHT, PINGPONG, SHARE_Q, FIRST)),
                (_consume, (descs, buffers, barriers, sizes, lse, scale, BLOCK_N, STAGES, CONSUMERS, RIGHT, PINGPONG, SHARE_Q, SECOND)),
                (_produce, (descs, buffers, barriers, sizes, BLOCK_N, STAGES, CONSUMERS, RIGHT)),
            ],
            [4, 1],
            [REGISTERS, 24],
        )
    else:
        gl.warp_specialize(
            [
                (_consume, (descs, buffers, barriers, sizes, lse, scale, BLOCK_N, STAGES, CONSUMERS, RIGHT, PINGPONG, SHARE_Q, FIRST)),
                (_consume, (descs, buffers, barriers, sizes, lse, scale, BLOCK_N, STAGES, CONSUMERS, RIGHT, PINGPONG, SHARE_Q, SECOND)),
                (_consume, (descs, buffers, barriers, sizes, lse, scale, BLOCK_N, STAGES, CONSUMERS, RIGHT, PINGPONG, SHARE_Q, THIRD)),
                (_produce, (descs, buffers, barriers, sizes, BLOCK_N, STAGES, CONSUMERS, RIGHT)),
            ],
            [4, 4, 1],
            [REGISTERS, REGISTERS, 24],
        )
