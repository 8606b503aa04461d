"""Attention backward in Triton, deterministic: no atomics, each gradient has one writer.

Three kernels: the row sums of dO * O; dK and dV by blocks of keys; dQ by blocks of queries. The
scores are computed twice, which costs two matrix products more than a backward with atomic
additions to dQ.
"""

import triton
import triton.language as tl

from .forward_triton import key_ranges, load_rows, visible

# Sizes change from call to call: none of them may start another compilation.
DELTA_SIZES = ("queries", "heads", "tiles", "d_b", "d_h")
DKDV_SIZES = ("queries", "keys", "heads_k", "group", "tiles", "left", "right", "l_b", "l_h")
DQ_SIZES = ("queries", "keys", "heads", "group", "tiles", "left", "right", "l_b", "l_h")


@triton.jit
def _sequence(cu, base, batch, stride_b, stride_s, length, VARLEN: tl.constexpr):
    """(pointer to the first row of a sequence, its length)."""
    if VARLEN:
        begin = tl.load(cu + batch)
        return base + begin.to(tl.int64) * stride_s, tl.load(cu + batch + 1) - begin
    return base + batch * stride_b, length


@triton.jit
def _rows_of(cu, base, batch, stride_b, VARLEN: tl.constexpr):
    """Pointer to the per-row float32 statistics of a sequence."""
    if VARLEN:
        return base + tl.load(cu + batch)
    return base + batch * stride_b


@triton.jit(do_not_specialize=DELTA_SIZES)
def delta_kernel(
    o, do, delta, cu_q, o_b, o_s, o_h, do_b, do_s, do_h, d_b, d_h, queries, heads, tiles,
    DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, VARLEN: tl.constexpr,
):  # fmt: skip
    """delta[row] = sum over dim of dO * O, float32."""
    pid = tl.program_id(0)
    tile = pid % tiles
    head = ((pid // tiles) % heads).to(tl.int64)
    batch = (pid // (tiles * heads)).to(tl.int64)
    o, count = _sequence(cu_q, o, batch, o_b, o_s, queries, VARLEN)
    do, count = _sequence(cu_q, do, batch, do_b, do_s, queries, VARLEN)
    delta = _rows_of(cu_q, delta, batch, d_b, VARLEN)
    start = tile * BLOCK_M
    if start >= count:
        return
    rows = tl.arange(0, BLOCK_M)
    dims = tl.arange(0, BLOCK_D)
    a = load_rows(o + head * o_h, start, rows, count, o_s, dims, DIM, True).to(tl.float32)
    b = load_rows(do + head * do_h, start, rows, count, do_s, dims, DIM, True).to(tl.float32)
    tl.store(delta + head * d_h + start + rows, tl.sum(a * b, 1), mask=start + rows < count)


@triton.jit
def _dkdv(
    dk, dv, k_block, v_block, q, do, lse, delta, low, high, cols, q_s, do_s,
    queries, keys, offset, left, right, scale,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, LEFT: tl.constexpr, RIGHT: tl.constexpr,
    MASKED: tl.constexpr,
):  # fmt: skip
    """Adds the share of query rows [low, high) of one head to dK (unscaled) and dV."""
    rows = tl.arange(0, BLOCK_M)
    dims = tl.arange(0, k_block.shape[1])
    for start in range(low, high, BLOCK_M):
        start = tl.multiple_of(start, BLOCK_M)
        q_block = load_rows(q, start, rows, queries, q_s, dims, DIM, MASKED)
        inside = start + rows < queries
        logs = tl.load(lse + start + rows, mask=inside, other=float("inf"))
        logs = tl.where(logs == float("-inf"), float("inf"), logs) * 1.4426950408889634
        s = tl.dot(k_block, q_block.T)
        p = tl.exp2(s * scale - logs[None, :])
        if MASKED:
            keep = visible(
                (start + rows)[None, :], cols[:, None], keys, offset, left, right, LEFT, RIGHT
            )
            p = tl.where(keep, p, 0.0)
        do_block = load_rows(do, start, rows, queries, do_s, dims, DIM, MASKED)
        dv = tl.dot(p.to(do_block.dtype), do_block, dv)
        dp = tl.dot(v_block, do_block.T)
        sums = tl.load(delta + start + rows, mask=inside, other=0.0)
        ds = p * (dp - sums[None, :])
        dk = tl.dot(ds.to(q_block.dtype), q_block, dk)
    return dk, dv


@triton.jit(do_not_specialize=DKDV_SIZES)
def dkdv_kernel(
    q, k, v, do, lse, delta, dk, dv, cu_q, cu_k,
    q_b, q_s, q_h, k_b, k_s, k_h, v_b, v_s, v_h, do_b, do_s, do_h, dk_b, dk_s, dk_h, dv_b, dv_s,
    dv_h, l_b, l_h, queries, keys, heads_k, group, tiles, left, right, scale, softmax_scale,
    DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, VARLEN: tl.constexpr,
):  # fmt: skip
    """dK and dV of BLOCK_N keys of one key head, summed over its group of query heads in order."""
    pid = tl.program_id(0)
    tile = pid % tiles
    head_k = ((pid // tiles) % heads_k).to(tl.int64)
    batch = (pid // (tiles * heads_k)).to(tl.int64)
    q, n_q = _sequence(cu_q, q, batch, q_b, q_s, queries, VARLEN)
    do, n_q = _sequence(cu_q, do, batch, do_b, do_s, queries, VARLEN)
    k, n_k = _sequence(cu_k, k, batch, k_b, k_s, keys, VARLEN)
    v, n_k = _sequence(cu_k, v, batch, v_b, v_s, keys, VARLEN)
    dk, n_k = _sequence(cu_k, dk, batch, dk_b, dk_s, keys, VARLEN)
    dv, n_k = _sequence(cu_k, dv, batch, dv_b, dv_s, keys, VARLEN)
    lse = _rows_of(cu_q, lse, batch, l_b, VARLEN)
    delta = _rows_of(cu_q, delta, batch, l_b, VARLEN)
    start = tile * BLOCK_N
    if start >= n_k:
        return
    offset = n_k - n_q
    local = tl.arange(0, BLOCK_N)
    cols = start + local
    dims = tl.arange(0, BLOCK_D)
    k_block = load_rows(k + head_k * k_h, start, local, n_k, k_s, dims, DIM, True)
    v_block = load_rows(v + head_k * v_h, start, local, n_k, v_s, dims, DIM, True)
    # The same question with the roles exchanged: key j is seen by rows j - offset - right .. j -
    # offset + left.
    low, free_low, free_high, high = key_ranges(
        0, n_q, start, start + BLOCK_N, n_q, -offset, right, left, BLOCK_M, RIGHT, LEFT
    )
    dk_acc = tl.zeros([BLOCK_N, BLOCK_D], tl.float32)
    dv_acc = tl.zeros([BLOCK_N, BLOCK_D], tl.float32)
    for g in range(group):
        head = head_k * group + g
        q_h_base = q + head * q_h
        do_h_base = do + head * do_h
        lse_h = lse + head * l_h
        delta_h = delta + head * l_h
        if RIGHT:
            dk_acc, dv_acc = _dkdv(
                dk_acc, dv_acc, k_block, v_block, q_h_base, do_h_base, lse_h, delta_h, low,
                free_low, cols, q_s, do_s, n_q, n_k, offset, left, right, scale, DIM, BLOCK_M, LEFT,
                RIGHT, True,
            )  # fmt: skip
        dk_acc, dv_acc = _dkdv(
            dk_acc, dv_acc, k_block, v_block, q_h_base, do_h_base, lse_h, delta_h, free_low,
            free_high, cols, q_s, do_s, n_q, n_k, offset, left, right, scale, DIM, BLOCK_M, LEFT,
            RIGHT, False,
        )  # fmt: skip
        dk_acc, dv_acc = _dkdv(
            dk_acc, dv_acc, k_block, v_block, q_h_base, do_h_base, lse_h, delta_h, free_high, high,
            cols, q_s, do_s, n_q, n_k, offset, left, right, scale, DIM, BLOCK_M, LEFT, RIGHT, True,
        )  # fmt: skip
    keep = (cols < n_k)[:, None] & (dims < DIM)[None, :]
    at_k = start.to(tl.int64) * dk_s + head_k * dk_h + local[:, None] * dk_s + dims[None, :]
    at_v = start.to(tl.int64) * dv_s + head_k * dv_h + local[:, None] * dv_s + dims[None, :]
    tl.store(dk + at_k, (dk_acc * softmax_scale).to(dk.dtype.element_ty), mask=keep)
    tl.store(dv + at_v, dv_acc.to(dv.dtype.element_ty), mask=keep)


@triton.jit
def _dq(
    dq, q_block, do_block, logs, sums, k, v, low, high, rows, k_s, v_s, keys, offset, left, right,
    scale, DIM: tl.constexpr, BLOCK_N: tl.constexpr, LEFT: tl.constexpr, RIGHT: tl.constexpr,
    MASKED: tl.constexpr,
):  # fmt: skip
    """Adds the share of keys [low, high) to dQ (unscaled)."""
    cols = tl.arange(0, BLOCK_N)
    dims = tl.arange(0, q_block.shape[1])
    for start in range(low, high, BLOCK_N):
        start = tl.multiple_of(start, BLOCK_N)
        k_block = load_rows(k, start, cols, keys, k_s, dims, DIM, MASKED)
        v_block = load_rows(v, start, cols, keys, v_s, dims, DIM, MASKED)
        s = tl.dot(q_block, k_block.T)
        p = tl.exp2(s * scale - logs[:, None])
        if MASKED:
            keep = visible(
                rows[:, None], (start + cols)[None, :], keys, offset, left, right, LEFT, RIGHT
            )
            p = tl.where(keep, p, 0.0)
        dp = tl.dot(do_block, v_block.T)
        ds = p * (dp - sums[:, None])
        dq = tl.dot(ds.to(k_block.dtype), k_block, dq)
    return dq


@triton.jit(do_not_specialize=DQ_SIZES)
def dq_kernel(
    q, k, v, do, lse, delta, dq, cu_q, cu_k,
    q_b, q_s, q_h, k_b, k_s, k_h, v_b, v_s, v_h, do_b, do_s, do_h, dq_b, dq_s, dq_h,
    l_b, l_h, queries, keys, heads, group, tiles, left, right, scale, softmax_scale,
    DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, VARLEN: tl.constexpr,
):  # fmt: skip
    """dQ of BLOCK_M rows of one head."""
    pid = tl.program_id(0)
    tile = pid % tiles
    if RIGHT:
        tile = tiles - 1 - tile
    head = ((pid // tiles) % heads).to(tl.int64)
    batch = (pid // (tiles * heads)).to(tl.int64)
    q, n_q = _sequence(cu_q, q, batch, q_b, q_s, queries, VARLEN)
    do, n_q = _sequence(cu_q, do, batch, do_b, do_s, queries, VARLEN)
    dq, n_q = _sequence(cu_q, dq, batch, dq_b, dq_s, queries, VARLEN)
    k, n_k = _sequence(cu_k, k, batch, k_b, k_s, keys, VARLEN)
    v, n_k = _sequence(cu_k, v, batch, v_b, v_s, keys, VARLEN)
    lse = _rows_of(cu_q, lse, batch, l_b, VARLEN)
    delta = _rows_of(cu_q, delta, batch, l_b, VARLEN)
    start = tile * BLOCK_M
    if start >= n_q:
        return
    offset = n_k - n_q
    local = tl.arange(0, BLOCK_M)
    rows = start + local
    dims = tl.arange(0, BLOCK_D)
    k += (head // group) * k_h
    v += (head // group) * v_h
    q_block = load_rows(q + head * q_h, start, local, n_q, q_s, dims, DIM, True)
    do_block = load_rows(do + head * do_h, start, local, n_q, do_s, dims, DIM, True)
    logs = tl.load(lse + head * l_h + rows, mask=rows < n_q, other=float("inf"))
    logs = tl.where(logs == float("-inf"), float("inf"), logs) * 1.4426950408889634
    sums = tl.load(delta + head * l_h + rows, mask=rows < n_q, other=0.0)
    low, free_low, free_high, high = key_ranges(
        0,
        n_k,
        start,
        tl.minimum(start + BLOCK_M, n_q),
        n_k,
        offset,
        left,
        right,
        BLOCK_N,
        LEFT,
        RIGHT,
    )
    acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    if LEFT:
        acc = _dq(
            acc, q_block, do_block, logs, sums, k, v, low, free_low, rows, k_s, v_s, n_k, offset,
            left, right, scale, DIM, BLOCK_N, LEFT, RIGHT, True,
        )  # fmt: skip
    acc = _dq(
        acc, q_block, do_block, logs, sums, k, v, free_low, free_high, rows, k_s, v_s, n_k, offset,
        left, right, scale, DIM, BLOCK_N, LEFT, RIGHT, False,
    )  # fmt: skip
    acc = _dq(
        acc, q_block, do_block, logs, sums, k, v, free_high, high, rows, k_s, v_s, n_k, offset,
        left, right, scale, DIM, BLOCK_N, LEFT, RIGHT, True,
    )  # fmt: skip
    keep = (rows < n_q)[:, None] & (dims < DIM)[None, :]
    at = start.to(tl.int64) * dq_s + head * dq_h + local[:, None] * dq_s + dims[None, :]
    tl.store(dq + at, (acc * softmax_scale).to(dq.dtype.element_ty), mask=keep)
