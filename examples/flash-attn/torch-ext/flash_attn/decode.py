"""Joining the partial results of attention that was split over the keys."""

import triton
import triton.language as tl

# Sizes change from call to call: none of them may start another compilation.
SIZES = ("p_p", "l_p", "queries", "heads", "splits")


@triton.jit(do_not_specialize=SIZES)
def combine_kernel(
    parts, part_lse, o, lse, o_b, o_s, o_h, p_p, p_row, l_p, queries, heads, splits,
    DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_SPLITS: tl.constexpr,
):  # fmt: skip
    """One (batch, head, query) row: the mean of its partial outputs, weighted by exp(log-sum-exp).

    `parts` is (splits, batch, head, query, DIM) and `part_lse` (splits, batch, head, query), both
    float32.
    """
    row = tl.program_id(0).to(tl.int64)
    query = row % queries
    head = (row // queries) % heads
    batch = row // (queries * heads)
    index = tl.arange(0, BLOCK_SPLITS)
    dims = tl.arange(0, BLOCK_D)
    logs = tl.load(
        part_lse + index.to(tl.int64) * l_p + row, mask=index < splits, other=float("-inf")
    )
    top = tl.max(logs, 0)
    safe = tl.where(top == float("-inf"), 0.0, top)
    weights = tl.exp(logs - safe)
    total = tl.sum(weights, 0)
    keep = (index < splits)[:, None] & (dims < DIM)[None, :]
    pointers = parts + index.to(tl.int64)[:, None] * p_p + row * p_row + dims[None, :]
    acc = tl.sum(tl.load(pointers, mask=keep, other=0.0) * weights[:, None], 0)
    seen = total > 0.0
    total = tl.where(seen, total, 1.0)
    acc = acc / total
    tl.store(
        o + batch * o_b + query * o_s + head * o_h + dims,
        acc.to(o.dtype.element_ty),
        mask=dims < DIM,
    )
    tl.store(lse + row, tl.where(seen, safe + tl.log(total), float("-inf")))
