"""The two matrix products of a block of keys, and what becomes of a finished tile (sm_90)."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
)

from .hopper_schedule import ROWS, phase, slot, store_block


@gluon.jit
def issue_scores(q, step, buffers):
    """Starts Q K^T of K block number `step`, which must have arrived."""
    _q_smem, k_smem, _v_smem, _o_smem = buffers
    BLOCK_N: gl.constexpr = k_smem.shape[3]
    DIM: gl.constexpr = k_smem.shape[4]
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    zero = gl.zeros([ROWS, BLOCK_N], gl.float32, layout=LAYOUT)
    k = k_smem.index(slot(step, k_smem.shape[0])).reshape([BLOCK_N, DIM])
    return warpgroup_mma(q, k.permute((1, 0)), zero, use_acc=False, is_async=True)


@gluon.jit
def release(barrier):
    """Every thread says that it is done with a buffer.

    Were it one thread for all (`mbarrier.arrive`), all would have to meet before, and after it: at
    two buffers a block four barriers of the warpgroup.
    """
    async_copy.mbarrier_arrive(barrier, increment_count=False)


@gluon.jit
def wait_for_values(step, buffers, barriers):
    """Until V block number `step` has arrived."""
    _q_smem, _k_smem, v_smem, _o_smem = buffers
    _q_full, _k_full, _k_empty, v_full, _v_empty = barriers
    STAGES: gl.constexpr = v_smem.shape[0]
    mbarrier.wait(v_full.index(slot(step, STAGES)), phase(step, STAGES))


@gluon.jit
def issue_output(p, o, step, buffers):
    """Starts O += P V of V block number `step`, which must have arrived."""
    _q_smem, _k_smem, v_smem, _o_smem = buffers
    v = v_smem.index(slot(step, v_smem.shape[0])).reshape([v_smem.shape[3], v_smem.shape[4]])
    return warpgroup_mma(p, v, o, is_async=True)


@gluon.jit
def finish_rows(top, sums, at, row, sizes, lse):
    """Stores the log-sum-exp of 64 rows; returns the factors that normalise them. A row that saw
    no key has no sum: it gets -inf, and 0 for output. Needs no product, so it runs beside one."""
    queries, _keys, heads, _group, _tiles_m, _tiles, _right = sizes
    _place, head, batch = at
    total = gl.convert_layout(gl.sum(sums, 1), top.type.layout)
    seen = total > 0.0
    total = gl.where(seen, total, 1.0)
    rows = row + gl.arange(0, ROWS, layout=total.type.layout)
    log_sum = gl.where(seen, top + gl.log2(total), float("-inf")) * 0.6931471805599453
    gl.store(lse + (batch * heads + head).to(gl.int64) * queries + rows, log_sum, rows < queries)
    return 1.0 / total


@gluon.jit
def write(
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
