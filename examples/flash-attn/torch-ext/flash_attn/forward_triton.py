"""Attention forward in Triton: every target, every option. Also the partial pass of decoding.

A program owns BLOCK_M query rows of one head and walks over the keys they may see. PACKED programs
own the query rows of a whole group of heads that share one key head, so that a decode step with one
query still fills a tile and reads its keys once. SPLIT programs see only their share of the keys
and write float32 partial results, which `decode.combine_kernel` joins.
"""

import triton
import triton.language as tl


@triton.jit
def key_ranges(
    begin, end, first, last, keys, offset, left, right,
    BLOCK_N: tl.constexpr, LEFT: tl.constexpr, RIGHT: tl.constexpr,
):  # fmt: skip
    """Bounds (low, free_low, free_high, high) of the keys in [begin, end) that rows [first, last)
    may see.

    Row i sees keys from i + offset - left to i + offset + right. All rows see all of [free_low,
    free_high); the rest needs a mask. The inner three are multiples of BLOCK_N counted from 0.
    """
    low = begin
    high = tl.minimum(end, keys)
    free_low = begin
    free_high = high // BLOCK_N * BLOCK_N
    if RIGHT:
        high = tl.minimum(high, tl.maximum(last + offset + right, 0))
        free_high = tl.minimum(
            free_high, tl.maximum(first + offset + right + 1, 0) // BLOCK_N * BLOCK_N
        )
    if LEFT:
        low = tl.maximum(low, tl.maximum(first + offset - left, 0) // BLOCK_N * BLOCK_N)
        free_low = tl.maximum(
            low, tl.cdiv(tl.maximum(last - 1 + offset - left, 0), BLOCK_N) * BLOCK_N
        )
    free_high = tl.maximum(free_high, low)
    free_low = tl.minimum(free_low, free_high)
    return low, free_low, free_high, high


@triton.jit
def load_rows(base, start, rows, count, stride, dims, DIM: tl.constexpr, CHECK: tl.constexpr):
    """Rows [start, start + len(rows)) of a (count, DIM) matrix; absent rows and columns read 0."""
    pointers = base + tl.cast(start, tl.int64) * stride + rows[:, None] * stride + dims[None, :]
    if CHECK:
        if dims.shape[0] == DIM:
            return tl.load(pointers, mask=(start + rows < count)[:, None], other=0.0)
        return tl.load(
            pointers, mask=(start + rows < count)[:, None] & (dims < DIM)[None, :], other=0.0
        )
    if dims.shape[0] == DIM:
        return tl.load(pointers)
    return tl.load(pointers, mask=(dims < DIM)[None, :], other=0.0)


@triton.jit
def visible(rows, cols, keys, offset, left, right, LEFT: tl.constexpr, RIGHT: tl.constexpr):
    """Which of the columns each row may see, broadcast to both."""
    keep = (cols < keys) & (rows >= rows)
    if RIGHT:
        keep = keep & (cols <= rows + offset + right)
    if LEFT:
        keep = keep & (cols >= rows + offset - left)
    return keep


@triton.jit
def attend(
    acc, top, total, q, k, v, low, high, rows, stride_k, stride_v, keys, offset, left, right, scale,
    DIM: tl.constexpr, BLOCK_N: tl.constexpr, LEFT: tl.constexpr, RIGHT: tl.constexpr,
    MASKED: tl.constexpr,
):  # fmt: skip
    """Online softmax over the keys [low, high): returns the new (accumulator, row maxima, row
    sums)."""
    cols = tl.arange(0, BLOCK_N)
    dims = tl.arange(0, q.shape[1])
    for start in range(low, high, BLOCK_N):
        start = tl.multiple_of(start, BLOCK_N)
        k_block = load_rows(k, start, cols, keys, stride_k, dims, DIM, MASKED)
        s = tl.dot(q, k_block.T)
        if MASKED:
            keep = visible(
                rows[:, None], (start + cols)[None, :], keys, offset, left, right, LEFT, RIGHT
            )
            s = tl.where(keep, s, float("-inf"))
        new_top = tl.maximum(top, tl.max(s, 1))
        safe = new_top * scale
        if MASKED:
            safe = tl.where(new_top == float("-inf"), 0.0, safe)
        alpha = tl.exp2(top * scale - safe)
        p = tl.exp2(s * scale - safe[:, None])
        total = total * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None]
        v_block = load_rows(v, start, cols, keys, stride_v, dims, DIM, MASKED)
        acc = tl.dot(p.to(v_block.dtype), v_block, acc)
        top = new_top
    return acc, top, total


# Sizes change from call to call: none of them may start another compilation.
SIZES = (
    "queries", "keys", "heads", "group", "tiles_m", "splits", "per_split", "left", "right", "lse_p",
    "lse_b", "lse_h",
)  # fmt: skip


@triton.jit(do_not_specialize=SIZES)
def forward_kernel(
    q, k, v, o, lse, cu_q, cu_k,
    q_b, q_s, q_h, k_b, k_s, k_h, v_b, v_s, v_h, o_p, o_b, o_s, o_h, lse_p, lse_b, lse_h,
    queries, keys, heads, group, tiles_m, splits, per_split, left, right, scale,
    DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, VARLEN: tl.constexpr, PACKED: tl.constexpr,
    SPLIT: tl.constexpr,
):  # fmt: skip
    """Attention of strided (batch, seq, head, dim) tensors; see `attention.attention_forward` for
    the host side.

    `heads` counts the key heads when PACKED, else the query heads. `scale` is softmax_scale *
    log2(e). With VARLEN, sequences lie one after the other and `cu_q`, `cu_k` (int32, batch + 1)
    hold their bounds. `o_p` and `lse_p` are the strides between the partial results of two splits.
    `lse` is float32, rows adjacent.
    """
    pid = tl.program_id(0)
    tile = pid % tiles_m
    if RIGHT:
        tile = tiles_m - 1 - tile  # the longest rows first
    split = (pid // tiles_m) % splits
    head = (pid // (tiles_m * splits)) % heads
    batch = (pid // (tiles_m * splits * heads)).to(tl.int64)
    if VARLEN:
        q_begin = tl.load(cu_q + batch)
        k_begin = tl.load(cu_k + batch)
        queries = tl.load(cu_q + batch + 1) - q_begin
        keys = tl.load(cu_k + batch + 1) - k_begin
        q += q_begin.to(tl.int64) * q_s
        o += q_begin.to(tl.int64) * o_s
        lse += q_begin
        k += k_begin.to(tl.int64) * k_s
        v += k_begin.to(tl.int64) * v_s
    else:
        q += batch * q_b
        o += batch * o_b
        k += batch * k_b
        v += batch * v_b
        lse += batch * lse_b
    count = queries
    if PACKED:
        count = queries * group
    first = tile * BLOCK_M
    if first >= count:
        return

    index = first + tl.arange(0, BLOCK_M)
    inside = index < count
    if PACKED:
        rows = index // group
        heads_q = (head * group + index % group).to(tl.int64)
        head_k = head.to(tl.int64)
        first_row = first // group
        last_row = (tl.minimum(first + BLOCK_M, count) - 1) // group + 1
    else:
        rows = index
        heads_q = tl.zeros([BLOCK_M], tl.int64) + head
        head_k = (head // group).to(tl.int64)
        first_row = first
        last_row = tl.minimum(first + BLOCK_M, count)
    dims = tl.arange(0, BLOCK_D)
    k += head_k * k_h
    v += head_k * v_h
    keep = inside[:, None] & (dims < DIM)[None, :]
    q_rows = rows.to(tl.int64) * q_s + heads_q * q_h
    q_block = tl.load(q + q_rows[:, None] + dims[None, :], mask=keep, other=0.0)

    begin = 0
    end = keys
    if SPLIT:
        begin = split * per_split
        end = begin + per_split
    offset = keys - queries
    low, free_low, free_high, high = key_ranges(
        begin, end, first_row, last_row, keys, offset, left, right, BLOCK_N, LEFT, RIGHT
    )
    top = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    if LEFT:
        acc, top, total = attend(
            acc, top, total, q_block, k, v, low, free_low, rows, k_s, v_s, keys, offset, left,
            right, scale, DIM, BLOCK_N, LEFT, RIGHT, True,
        )  # fmt: skip
        top = tl.where(top == float("-inf"), -1e30, top)  # so that the unmasked loop needs no guard
    acc, top, total = attend(
        acc, top, total, q_block, k, v, free_low, free_high, rows, k_s, v_s, keys, offset, left,
        right, scale, DIM, BLOCK_N, LEFT, RIGHT, False,
    )  # fmt: skip
    acc, top, total = attend(
        acc, top, total, q_block, k, v, free_high, high, rows, k_s, v_s, keys, offset, left, right,
        scale, DIM, BLOCK_N, LEFT, RIGHT, True,
    )  # fmt: skip

    # A row that saw no key keeps total == 0: its output is 0 and its log-sum-exp -inf.
    seen = total > 0.0
    total = tl.where(seen, total, 1.0)
    acc = acc * (1.0 / total)[:, None]
    log_sum = tl.where(seen, top * scale + tl.log2(total), float("-inf")) * 0.6931471805599453
    o_rows = rows.to(tl.int64) * o_s + heads_q * o_h + split.to(tl.int64) * o_p
    tl.store(o + o_rows[:, None] + dims[None, :], acc.to(o.dtype.element_ty), mask=keep)
    tl.store(lse + split.to(tl.int64) * lse_p + heads_q * lse_h + rows, log_sum, mask=inside)
