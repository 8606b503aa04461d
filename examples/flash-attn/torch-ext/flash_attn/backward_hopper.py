"""Attention backward for sm_90 in Gluon: scores computed once, dQ summed in float32 by TMA.

A program owns KEYS keys of one key head: their dK and dV stay in registers while it walks over the
query rows that see them. One warp (the producer) copies Q, dO and the rows' statistics into rings
in shared memory; one or two warpgroups compute, transposed (keys by queries), so that P and dS
leave the registers only where another warpgroup needs them. Of the five products of a step, dP runs
under the exponentials, dV under dS, dK under the staging of dQ.

WIDE heads (over 128) have no room for the dK and dV of 64 keys in one warpgroup: the two share the
keys and split the columns, and P passes through shared memory too.
"""

from triton._C.libtriton import ir
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language._core import builtin
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from .hopper_schedule import load_block, store_block


@builtin
def _add_block(tensor_desc, coord, src, _semantic=None):
    """Triton 3.6 can add a block to global memory by TMA, but has no name for it."""
    coord = _semantic._convert_to_ir_values(coord, require_i64=False)
    kind = ir.DESCRIPTOR_REDUCE_KIND.ADD
    _semantic.builder.create_async_tma_reduce(kind, tensor_desc.handle, coord, src.handle)


# Not 3.9's tma.async_atomic_add: a tree is for a source that must be the same on every version.
add_block = _add_block


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
    q_desc, k_desc, v_desc, do_desc, _dk_desc, _dv_desc, _dq_desc = descs
    q_smem, k_smem, v_smem, do_smem, log_smem, sum_smem, _p_smem, _ds_smem, _dq_smem = buffers
    kv_full, q_full, do_full, empty, do_empty = barriers
    logs, sums, padded = stats
    _queries, _keys, heads_k, group, _tiles, _right = sizes
    DO_STAGES: gl.constexpr = do_smem.shape[0]
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
        mbarrier.wait(empty.index(slot), phase)
        mbarrier.expect(q_full.index(slot), q_desc.block_type.nbytes)
        load_block(q_desc, [batch, head, row, 0], q_full.index(slot), q_smem.index(slot))
        log_smem.index(slot).store(log_rows)
        mbarrier.arrive(q_full.index(slot))
        if DO_STAGES < STAGES:
            slot = step % DO_STAGES
            mbarrier.wait(do_empty.index(slot), ((step // DO_STAGES) & 1) ^ 1)
        mbarrier.expect(do_full.index(slot), do_desc.block_type.nbytes)
        load_block(do_desc, [batch, head, row, 0], do_full.index(slot), do_smem.index(slot))
        sum_smem.index(slot).store(sum_rows)
        mbarrier.arrive(do_full.index(slot))


@gluon.jit
def _add(desc, at, dq, smem):
    """Adds (rows, columns) to a tile of float32 in global memory by way of shared memory."""
    tma.store_wait(0)
    smem.reshape([dq.shape[0], dq.shape[1]]).store(dq)
    fence_async_shared()
    add_block(desc, at, smem)


@gluon.constexpr_function
def _accumulator(warps, split, columns):
    """Layout of a product whose columns are split between `split` warpgroups, its rows between the
    others."""
    return gl.NVMMADistributedLayout([3, 0], [warps // split, split], [16, columns // split, 16])


@gluon.jit
def _consume(
    descs, buffers, barriers, stats, sizes, scale, softmax_scale,
    KEYS: gl.constexpr, BLOCK_M: gl.constexpr, STAGES: gl.constexpr, RIGHT: gl.constexpr,
    WIDE: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    q_smem, k_smem, v_smem, do_smem, log_smem, sum_smem, p_smem, ds_smem, dq_smem = buffers
    _q_desc, _k_desc, _v_desc, _do_desc, dk_desc, dv_desc, dq_desc = descs
    kv_full, q_full, do_full, empty, do_empty = barriers
    queries, keys, _heads_k, group, _tiles, right = sizes
    DTYPE: gl.constexpr = q_smem.dtype
    BLOCK_D: gl.constexpr = q_smem.shape[4]
    SPLIT: gl.constexpr = 2 if WIDE else 1  # of columns between the warpgroups
    SHARE: gl.constexpr = WARPS * 16 // BLOCK_M  # of columns of dQ
    S_LAYOUT: gl.constexpr = _accumulator(WARPS, SPLIT, BLOCK_M)
    KV_LAYOUT: gl.constexpr = _accumulator(WARPS, SPLIT, BLOCK_D)
    COLUMNS: gl.constexpr = dq_smem.shape[3]  # of dQ at a time
    HALVES: gl.constexpr = BLOCK_D // COLUMNS
    DO_STAGES: gl.constexpr = do_smem.shape[0]
    DQ_LAYOUT: gl.constexpr = _accumulator(WARPS, SHARE, COLUMNS)
    P_LAYOUT: gl.constexpr = gl.DotOperandLayout(0, KV_LAYOUT, 2)
    batch, head_k, tile = _place(sizes)
    first, blocks = _span(tile, sizes, KEYS, BLOCK_M, RIGHT)
    no_scores = gl.zeros([KEYS, BLOCK_M], gl.float32, layout=S_LAYOUT)
    no_dq = gl.zeros([BLOCK_M, COLUMNS], gl.float32, layout=DQ_LAYOUT)
    dk = gl.zeros([KEYS, BLOCK_D], gl.float32, layout=KV_LAYOUT)
    dv = gl.zeros([KEYS, BLOCK_D], gl.float32, layout=KV_LAYOUT)
    k = k_smem.reshape([KEYS, BLOCK_D])
    v = v_smem.reshape([KEYS, BLOCK_D])
    k_left = k
    k_right = k
    if HALVES == 2:
        k_left = k.slice(0, COLUMNS, 1)
        k_right = k.slice(COLUMNS, COLUMNS, 1)
    cols = tile * KEYS + gl.arange(0, KEYS, layout=gl.SliceLayout(1, S_LAYOUT))
    partial = (tile + 1) * KEYS > keys
    mbarrier.wait(kv_full.index(0), 0)
    for step in range(blocks * group):
        member, row = _row(step, tile, sizes, first, blocks, BLOCK_M)
        slot = step % STAGES
        phase = (step // STAGES) & 1
        q = q_smem.index(slot).reshape([BLOCK_M, BLOCK_D])
        do_slot = step % DO_STAGES
        do = do_smem.index(do_slot).reshape([BLOCK_M, BLOCK_D])
        mbarrier.wait(q_full.index(slot), phase)
        s = warpgroup_mma(k, q.permute((1, 0)), no_scores, use_acc=False, is_async=True)
        mbarrier.wait(do_full.index(do_slot), (step // DO_STAGES) & 1)
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
        if WIDE:
            p_smem.store(p_low)
            fence_async_shared()
            dv_next = warpgroup_mma(p_smem, do, dv, is_async=True)
        else:
            p_op = gl.convert_layout(p_low, P_LAYOUT)
            dv_next = warpgroup_mma(p_op, do, dv, is_async=True)
        sum_rows = sum_smem.index(do_slot).load(gl.SliceLayout(0, S_LAYOUT))
        dp = warpgroup_mma_wait(1, [dp])
        ds = (p * (dp - sum_rows[None, :])).to(DTYPE)
        ds_smem.store(ds)
        fence_async_shared()
        ds_turned = ds_smem.permute((1, 0))
        dq = warpgroup_mma(ds_turned, k_left, no_dq, use_acc=False, is_async=True)
        if WIDE:
            dk_next = warpgroup_mma(ds_smem, q, dk, is_async=True)
        else:
            dk_next = warpgroup_mma(gl.convert_layout(ds, P_LAYOUT), q, dk, is_async=True)
        dv = warpgroup_mma_wait(2, [dv_next])
        if DO_STAGES < STAGES:
            mbarrier.arrive(do_empty.index(do_slot))
        dq = warpgroup_mma_wait(1, [dq])
        head = head_k * group + member
        _add(dq_desc, [batch, head, row, 0], dq, dq_smem)
        if HALVES == 2:
            dq = warpgroup_mma(ds_turned, k_right, no_dq, use_acc=False, is_async=True)
        dk = warpgroup_mma_wait(HALVES - 1, [dk_next])
        mbarrier.arrive(empty.index(slot))
        if HALVES == 2:
            dq = warpgroup_mma_wait(0, [dq])
            _add(dq_desc, [batch, head, row, COLUMNS], dq, dq_smem)
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
    q_desc, k_desc, v_desc, do_desc, dk_desc, dv_desc, dq_desc, logs, sums, padded,
    queries, keys, heads_k, group, tiles, right, scale, softmax_scale,
    STAGES: gl.constexpr, DO_STAGES: gl.constexpr, RIGHT: gl.constexpr, WIDE: gl.constexpr,
    WARPS: gl.constexpr,
):  # fmt: skip
    """dK, dV and the sum of dQ / softmax_scale; see `hopper_backward.launch` for the host side.

    Args:
        q_desc, do_desc: rank 4, blocks (1, 1, BLOCK_M, dim); k_desc to dv_desc: (1, 1, KEYS, dim).
        logs, sums: what `backward_sums.prepare_kernel` filled, `padded` rows a head.
        right: keys past the bottom-right diagonal that a row may see (RIGHT only).
        scale: softmax_scale * log2(e).
        dq_desc: of the float32 sum that becomes dQ, blocks (1, 1, BLOCK_M, dim or half of it).
        DO_STAGES: as STAGES, or fewer: depth of the ring of dO, which is done with earlier than Q.
        WARPS: that compute, 8 or 4; KEYS is 16 a warp, 8 where WIDE.
    """
    DTYPE: gl.constexpr = q_desc.dtype
    BLOCK_M: gl.constexpr = q_desc.block_shape[2]
    KEYS: gl.constexpr = k_desc.block_shape[2]
    q_smem = gl.allocate_shared_memory(DTYPE, _ring(STAGES, q_desc.block_shape), q_desc.layout)
    do_smem = gl.allocate_shared_memory(
        DTYPE, _ring(DO_STAGES, do_desc.block_shape), do_desc.layout
    )
    k_smem = gl.allocate_shared_memory(DTYPE, k_desc.block_shape, k_desc.layout)
    v_smem = gl.allocate_shared_memory(DTYPE, v_desc.block_shape, v_desc.layout)
    FLAT: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    log_smem = gl.allocate_shared_memory(gl.float32, [STAGES, BLOCK_M], FLAT)
    sum_smem = gl.allocate_shared_memory(gl.float32, [DO_STAGES, BLOCK_M], FLAT)
    TURNED: gl.constexpr = gl.NVMMASharedLayout.get_default_for([KEYS, BLOCK_M], DTYPE)
    ds_smem = gl.allocate_shared_memory(DTYPE, [KEYS, BLOCK_M], TURNED)
    p_smem = ds_smem
    if WIDE:
        p_smem = gl.allocate_shared_memory(DTYPE, [KEYS, BLOCK_M], TURNED)
    dq_smem = gl.allocate_shared_memory(gl.float32, dq_desc.block_shape, dq_desc.layout)
    LAYOUT: gl.constexpr = mbarrier.MBarrierLayout()
    kv_full = gl.allocate_shared_memory(gl.int64, [1, 1], LAYOUT)
    q_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], LAYOUT)
    do_full = gl.allocate_shared_memory(gl.int64, [DO_STAGES, 1], LAYOUT)
    do_empty = gl.allocate_shared_memory(gl.int64, [DO_STAGES, 1], LAYOUT)
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], LAYOUT)
    mbarrier.init(kv_full.index(0), count=1)
    for s in gl.static_range(STAGES):
        mbarrier.init(q_full.index(s), count=2)  # the copy, and the rows' statistics
        mbarrier.init(empty.index(s), count=1)
    for s in gl.static_range(DO_STAGES):
        mbarrier.init(do_full.index(s), count=2)
        mbarrier.init(do_empty.index(s), count=1)
    descs = (q_desc, k_desc, v_desc, do_desc, dk_desc, dv_desc, dq_desc)
    buffers = (q_smem, k_smem, v_smem, do_smem, log_smem, sum_smem, p_smem, ds_smem, dq_smem)
    barriers = (kv_full, q_full, do_full, empty, do_empty)
    stats = (logs, sums, padded)
    sizes = (queries, keys, heads_k, group, tiles, right)
    gl.warp_specialize(
        [
            (_consume, (descs, buffers, barriers, stats, sizes, scale, softmax_scale,
                        KEYS, BLOCK_M, STAGES, RIGHT, WIDE, WARPS)),
            (_produce, (descs, buffers, barriers, stats, sizes, KEYS, BLOCK_M, STAGES, RIGHT)),
        ],
        [1],
        [24],
    )  # fmt: skip
