"""Attention backward for sm_90 in Gluon: scores computed once, dQ summed by atomic additions.

A program owns KEYS keys of one key head: their dK and dV stay in registers while it walks over the
query rows that see them. One warp (the producer) copies Q, dO and the rows' statistics into rings
in shared memory; one or two warpgroups compute, transposed (keys by queries), so that P and dS
leave the registers only where another warpgroup needs them. Of the five products of a step, dP runs
under the exponentials, dV under dS, and dK under the additions to dQ.

WIDE heads (over 128) have no room for the dK and dV of 64 keys in one warpgroup: the two share the
keys and split the columns, and P passes through shared memory too.
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

from .hopper_schedule import load_block, store_block


@gluon.jit
def _span(tile, sizes, KEYS: gl.constexpr, BLOCK_M: gl.constexpr, RIGHT: gl.constexpr):
    """(first block of query rows that sees keys of the tile, number of such blocks)."""
    queries, keys, _heads_k, _group, _tiles, right = sizes
    blocks = gl.cdiv(queries, BLOCK_M)
    first = 0
    if RIGHT:
        first = gl.minimum(gl.maximum(tile * KEYS - (keys - queries) - right, 0) // BLOCK_M, blocks)
    return first, blocks - first


@gluon.jit
def _row(step, tile, sizes, first, blocks, BLOCK_M: gl.constexpr):
    """(query head within the group, first row) of a step.

    Each tile starts elsewhere, so that programs of one head do not add to the same rows of dQ at
    the same time.
    """
    tiles = sizes[4]
    turn = step % blocks + (tile * blocks) // tiles
    turn = gl.where(turn >= blocks, turn - blocks, turn)
    return step // blocks, (first + turn) * BLOCK_M


@gluon.jit
def _place(sizes):
    """(batch, key head, tile of keys) of this program."""
    _queries, _keys, heads_k, _group, tiles, _right = sizes
    pair = gl.program_id(0) // tiles
    return pair // heads_k, pair % heads_k, gl.program_id(0) % tiles


@gluon.jit
def _produce(
    descs, buffers, barriers, stats, sizes,
    KEYS: gl.constexpr, BLOCK_M: gl.constexpr, STAGES: gl.constexpr, RIGHT: gl.constexpr,
):  # fmt: skip
    q_desc, k_desc, v_desc, do_desc, _dk_desc, _dv_desc = descs
    q_smem, k_smem, v_smem, do_smem, log_smem, sum_smem, _p_smem, _ds_smem = buffers
    kv_full, q_full, q_empty, do_full, do_empty = barriers
    logs, sums, padded = stats
    _queries, _keys, heads_k, group, _tiles, _right = sizes
    LAYOUT: gl.constexpr = gl.BlockedLayout([BLOCK_M // 32], [32], [1], [0])
    batch, head_k, tile = _place(sizes)
    first, blocks = _span(tile, sizes, KEYS, BLOCK_M, RIGHT)
    mbarrier.expect(kv_full.index(0), k_desc.block_type.nbytes + v_desc.block_type.nbytes)
    load_block(k_desc, [batch, head_k, tile * KEYS, 0], kv_full.index(0), k_smem)
    load_block(v_desc, [batch, head_k, tile * KEYS, 0], kv_full.index(0), v_smem)
    lanes = gl.arange(0, BLOCK_M, layout=LAYOUT)
    for step in range(blocks * group):
        member, row = _row(step, tile, sizes, first, blocks, BLOCK_M)
        head = head_k * group + member
        at = (batch * heads_k * group + head).to(gl.int64) * padded + row
        log_rows = gl.load(logs + at + lanes)
        sum_rows = gl.load(sums + at + lanes)
        slot = step % STAGES
        phase = ((step // STAGES) & 1) ^ 1
        mbarrier.wait(q_empty.index(slot), phase)
        mbarrier.expect(q_full.index(slot), q_desc.block_type.nbytes)
        load_block(q_desc, [batch, head, row, 0], q_full.index(slot), q_smem.index(slot))
        log_smem.index(slot).store(log_rows)
        mbarrier.arrive(q_full.index(slot))
        mbarrier.wait(do_empty.index(slot), phase)
        mbarrier.expect(do_full.index(slot), do_desc.block_type.nbytes)
        load_block(do_desc, [batch, head, row, 0], do_full.index(slot), do_smem.index(slot))
        sum_smem.index(slot).store(sum_rows)
        mbarrier.arrive(do_full.index(slot))


@gluon.constexpr_function
def _neighbours(rows, dim, warps, share):
    """Where `_add` wants an accumulator: each thread's columns four by four."""
    last = [] if warps == 4 else [[0, dim // 2]] if share == 2 else [[64, 0]]
    columns = [[0, 1 << i] for i in range(4, (dim // share).bit_length() - 1)]
    return gl.DistributedLinearLayout(
        reg_bases=[[0, 1], [0, 2], [8, 0], *columns],
        lane_bases=[[0, 4], [0, 8], [1, 0], [2, 0], [4, 0]],
        warp_bases=[[16, 0], [32, 0], *last],
        block_bases=[],
        shape=[rows, dim],
    )


@gluon.jit
def _add(target, dq, WARPS: gl.constexpr, SHARE: gl.constexpr):
    """Adds (rows, columns) to a tile of float32 whose columns lie as `finish_kernel` reads them.

    A thread holds columns c, c + 1, c + 8 and c + 9 of 16: as neighbours they are one addition of
    16 bytes.
    """
    ROWS: gl.constexpr = dq.shape[0]
    DIM: gl.constexpr = dq.shape[1]
    LAYOUT: gl.constexpr = _neighbours(ROWS, DIM, WARPS, SHARE)
    dq = dq.reshape([ROWS, DIM // 16, 2, 4, 2]).permute((0, 1, 3, 2, 4)).reshape([ROWS, DIM])
    dq = gl.convert_layout(dq, LAYOUT)
    rows = gl.arange(0, ROWS, layout=gl.SliceLayout(1, LAYOUT))
    cols = gl.arange(0, DIM, layout=gl.SliceLayout(0, LAYOUT)) // 4 * 4
    pointers = (target + (rows[:, None] * DIM + cols[None, :])).to(gl.int64)
    gl.inline_asm_elementwise(
        "red.relaxed.gpu.global.add.v4.f32 [$1], {$5, $6, $7, $8};",
        "=r,l,l,l,l,f,f,f,f", [pointers, dq], gl.int8, False, 4,
    )  # fmt: skip


@gluon.constexpr_function
def _accumulator(warps, split, columns):
    """Layout of a product whose columns are split between `split` warpgroups, its rows between the
    others."""
    return gl.NVMMADistributedLayout([3, 0], [warps // split, split], [16, columns // split, 16])


@gluon.jit
def _consume(
    descs, buffers, barriers, stats, sizes, dq_sum, scale, softmax_scale,
    KEYS: gl.constexpr, BLOCK_M: gl.constexpr, STAGES: gl.constexpr, RIGHT: gl.constexpr,
    WIDE: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    q_smem, k_smem, v_smem, do_smem, log_smem, sum_smem, p_smem, ds_smem = buffers
    _q_desc, _k_desc, _v_desc, _do_desc, dk_desc, dv_desc = descs
    kv_full, q_full, q_empty, do_full, do_empty = barriers
    _logs, _sums, padded = stats
    queries, keys, heads_k, group, _tiles, right = sizes
    DTYPE: gl.constexpr = q_smem.dtype
    BLOCK_D: gl.constexpr = q_smem.shape[4]
    SPLIT: gl.constexpr = 2 if WIDE else 1  # of columns between the warpgroups
    SHARE: gl.constexpr = WARPS * 16 // BLOCK_M  # of columns of dQ
    S_LAYOUT: gl.constexpr = _accumulator(WARPS, SPLIT, BLOCK_M)
    KV_LAYOUT: gl.constexpr = _accumulator(WARPS, SPLIT, BLOCK_D)
    DQ_LAYOUT: gl.constexpr = _accumulator(WARPS, SHARE, BLOCK_D)
    P_LAYOUT: gl.constexpr = gl.DotOperandLayout(0, KV_LAYOUT, 2)
    batch, head_k, tile = _place(sizes)
    first, blocks = _span(tile, sizes, KEYS, BLOCK_M, RIGHT)
    no_scores = gl.zeros([KEYS, BLOCK_M], gl.float32, layout=S_LAYOUT)
    no_dq = gl.zeros([BLOCK_M, BLOCK_D], gl.float32, layout=DQ_LAYOUT)
    dk = gl.zeros([KEYS, BLOCK_D], gl.float32, layout=KV_LAYOUT)
    dv = gl.zeros([KEYS, BLOCK_D], gl.float32, layout=KV_LAYOUT)
    k = k_smem.reshape([KEYS, BLOCK_D])
    v = v_smem.reshape([KEYS, BLOCK_D])
    cols = tile * KEYS + gl.arange(0, KEYS, layout=gl.SliceLayout(1, S_LAYOUT))
    partial = (tile + 1) * KEYS > keys
    mbarrier.wait(kv_full.index(0), 0)
    for step in range(blocks * group):
        member, row = _row(step, tile, sizes, first, blocks, BLOCK_M)
        slot = step % STAGES
        phase = (step // STAGES) & 1
        q = q_smem.index(slot).reshape([BLOCK_M, BLOCK_D])
        do = do_smem.index(slot).reshape([BLOCK_M, BLOCK_D])
        mbarrier.wait(q_full.index(slot), phase)
        s = warpgroup_mma(k, q.permute((1, 0)), no_scores, use_acc=False, is_async=True)
        mbarrier.wait(do_full.index(slot), phase)
        dp = warpgroup_mma(v, do.permute((1, 0)), no_scores, use_acc=False, is_async=True)
        log_rows = log_smem.index(slot).load(gl.SliceLayout(0, S_LAYOUT))
        s = warpgroup_mma_wait(1, [s])
        p = gl.exp2(s * scale - log_rows[None, :])
        if RIGHT:
            if partial | (row + keys - queries + right < (tile + 1) * KEYS - 1):
                rows = row + gl.arange(0, BLOCK_M, layout=gl.SliceLayout(0, S_LAYOUT))
                bound = gl.minimum(rows + (keys - queries + right), keys - 1)
                p = gl.where(cols[:, None] <= bound[None, :], p, 0.0)
        elif partial:
            p = gl.where((cols < keys)[:, None], p, 0.0)
        p_low = p.to(DTYPE)
        if BLOCK_M == 128:
            p = p_low.to(gl.float32)  # both in float32 and not would not fit the registers
        if WIDE:
            p_smem.store(p_low)
            fence_async_shared()
            dv_next = warpgroup_mma(p_smem, do, dv, is_async=True)
        else:
            p_op = gl.convert_layout(p_low, P_LAYOUT)
            dv_next = warpgroup_mma(p_op, do, dv, is_async=True)
        sum_rows = sum_smem.index(slot).load(gl.SliceLayout(0, S_LAYOUT))
        dp = warpgroup_mma_wait(1, [dp])
        ds = (p * (dp - sum_rows[None, :])).to(DTYPE)
        ds_smem.store(ds)
        fence_async_shared()
        dq = warpgroup_mma(ds_smem.permute((1, 0)), k, no_dq, use_acc=False, is_async=True)
        if WIDE:
            dk_next = warpgroup_mma(ds_smem, q, dk, is_async=True)
        else:
            dk_next = warpgroup_mma(gl.convert_layout(ds, P_LAYOUT), q, dk, is_async=True)
        dv = warpgroup_mma_wait(2, [dv_next])
        mbarrier.arrive(do_empty.index(slot))
        dq = warpgroup_mma_wait(1, [dq])
        head = (batch * heads_k + head_k) * group + member
        _add(dq_sum + (head.to(gl.int64) * padded + row) * BLOCK_D, dq, WARPS, SHARE)
        dk = warpgroup_mma_wait(0, [dk_next])
        mbarrier.arrive(q_empty.index(slot))
    v.store(dv.to(DTYPE))
    k.store((dk * softmax_scale).to(DTYPE))
    fence_async_shared()
    store_block(dv_desc, [batch, head_k, tile * KEYS, 0], v_smem)
    store_block(dk_desc, [batch, head_k, tile * KEYS, 0], k_smem)
    tma.store_wait(0)


@gluon.constexpr_function
def _ring(count, block):
    return [count, *block]


# Sizes change from call to call: none of them may start another compilation.
SIZES = ("queries", "keys", "heads_k", "group", "tiles", "right", "padded")


@gluon.jit(do_not_specialize=SIZES)
def backward_kernel(
    q_desc, k_desc, v_desc, do_desc, dk_desc, dv_desc, logs, sums, dq_sum, padded,
    queries, keys, heads_k, group, tiles, right, scale, softmax_scale,
    STAGES: gl.constexpr, RIGHT: gl.constexpr, WIDE: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    """dK, dV and the sum of dQ / softmax_scale; see `hopper_backward.launch` for the host side.

    Args:
        q_desc, do_desc: rank 4, blocks (1, 1, BLOCK_M, dim); k_desc to dv_desc: (1, 1, KEYS, dim).
        logs, sums, dq_sum: what `backward_sums.prepare_kernel` filled, `padded` rows a head.
        right: keys past the bottom-right diagonal that a row may see (RIGHT only).
        scale: softmax_scale * log2(e).
        WARPS: that compute, 8 or 4; KEYS is 16 a warp, 8 where WIDE.
    """
    DTYPE: gl.constexpr = q_desc.dtype
    BLOCK_M: gl.constexpr = q_desc.block_shape[2]
    KEYS: gl.constexpr = k_desc.block_shape[2]
    q_smem = gl.allocate_shared_memory(DTYPE, _ring(STAGES, q_desc.block_shape), q_desc.layout)
    do_smem = gl.allocate_shared_memory(DTYPE, _ring(STAGES, do_desc.block_shape), do_desc.layout)
    k_smem = gl.allocate_shared_memory(DTYPE, k_desc.block_shape, k_desc.layout)
    v_smem = gl.allocate_shared_memory(DTYPE, v_desc.block_shape, v_desc.layout)
    FLAT: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    log_smem = gl.allocate_shared_memory(gl.float32, [STAGES, BLOCK_M], FLAT)
    sum_smem = gl.allocate_shared_memory(gl.float32, [STAGES, BLOCK_M], FLAT)
    TURNED: gl.constexpr = gl.NVMMASharedLayout.get_default_for([KEYS, BLOCK_M], DTYPE)
    ds_smem = gl.allocate_shared_memory(DTYPE, [KEYS, BLOCK_M], TURNED)
    p_smem = ds_smem
    if WIDE:
        p_smem = gl.allocate_shared_memory(DTYPE, [KEYS, BLOCK_M], TURNED)
    LAYOUT: gl.constexpr = mbarrier.MBarrierLayout()
    kv_full = gl.allocate_shared_memory(gl.int64, [1, 1], LAYOUT)
    q_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], LAYOUT)
    q_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], LAYOUT)
    do_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], LAYOUT)
    do_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], LAYOUT)
    mbarrier.init(kv_full.index(0), count=1)
    for s in gl.static_range(STAGES):
        mbarrier.init(q_full.index(s), count=2)  # the copy, and the rows' statistics
        mbarrier.init(q_empty.index(s), count=1)
        mbarrier.init(do_full.index(s), count=2)
        mbarrier.init(do_empty.index(s), count=1)
    descs = (q_desc, k_desc, v_desc, do_desc, dk_desc, dv_desc)
    buffers = (q_smem, k_smem, v_smem, do_smem, log_smem, sum_smem, p_smem, ds_smem)
    barriers = (kv_full, q_full, q_empty, do_full, do_empty)
    stats = (logs, sums, padded)
    sizes = (queries, keys, heads_k, group, tiles, right)
    gl.warp_specialize(
        [
            (_consume, (descs, buffers, barriers, stats, sizes, dq_sum, scale, softmax_scale,
                        KEYS, BLOCK_M, STAGES, RIGHT, WIDE, WARPS)),
            (_produce, (descs, buffers, barriers, stats, sizes, KEYS, BLOCK_M, STAGES, RIGHT)),
        ],
        [1],
        [24],
    )  # fmt: skip
