"""The Triton kernels. Arithmetic is in float32, exponentials in base 2.

The maximum is subtracted before the factor log2(e) is applied: folded into the scale, it would
round each term in proportion to its size, 1e-4 of the result for inputs around 10^4.

A row that fits one block is read once; a longer one is read twice, with the running maximum and sum
of Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018).
"""

import triton
import triton.language as tl

# exp(x) = exp2(x * log2(e)); the hardware has exp2.
LOG2_E = tl.constexpr(1.4426950408889634)


def _configs():
    return [
        triton.Config({"TILE": tile}, num_warps=warps)
        for tile in (512, 1024, 2048, 4096, 8192, 16384)
        for warps in (1, 2, 4, 8, 16)
        # 4 to 64 elements a thread: fewer leave lanes without a full access, more spill.
        if 4 <= tile // (32 * warps) <= 64
    ]


# The shape of a tile follows from its size and the row's: whole rows, or a part of a long one. So
# one configuration suits short and long rows, and a handful suits all.
_SHAPE = {
    "BLOCK_N": lambda args: min(args["TILE"], triton.next_power_of_2(args["N"])),
    "BLOCK_M": lambda args: args["TILE"] // args["BLOCK_N"],
    "ONE_BLOCK": lambda args: args["BLOCK_N"] >= args["N"],
}


@triton.autotune(configs=_configs(), key=["M", "N"])
@triton.heuristics(_SHAPE)
@triton.jit
def softmax_forward(
    x_ptr,
    y_ptr,
    M,
    N,
    x_stride,
    y_stride,
    scale,
    TILE: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_M: tl.constexpr,
    ONE_BLOCK: tl.constexpr,
):
    """y = softmax(scale * x) for BLOCK_M rows a program. All -inf gives NaN, as in torch."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    row_ok = rows < M
    x_rows = x_ptr + rows.to(tl.int64)[:, None] * x_stride
    y_rows = y_ptr + rows.to(tl.int64)[:, None] * y_stride
    columns = tl.arange(0, BLOCK_N)

    if ONE_BLOCK:
        ok = row_ok[:, None] & (columns < N)[None, :]
        x = tl.load(x_rows + columns[None, :], mask=ok, other=-float("inf")).to(tl.float32) * scale
        x = tl.where(ok, x, -float("inf"))  # a scale of zero or below must not revive the padding
        # Rows past M hold -inf alone: their maximum is replaced so that no NaN is computed.
        top = tl.where(row_ok, tl.max(x, axis=1), 0.0)
        e = tl.exp2((x - top[:, None]) * LOG2_E)
        y = e / tl.where(row_ok, tl.sum(e, axis=1), 1.0)[:, None]
        tl.store(y_rows + columns[None, :], y.to(y_ptr.dtype.element_ty), mask=ok)
    else:
        top = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
        total = tl.zeros((BLOCK_M,), dtype=tl.float32)
        for start in range(0, N, BLOCK_N):
            ok = row_ok[:, None] & (start + columns < N)[None, :]
            at = x_rows + start + columns[None, :]
            x = tl.load(at, mask=ok, other=-float("inf")).to(tl.float32) * scale
            x = tl.where(ok, x, -float("inf"))
            higher = tl.maximum(top, tl.max(x, axis=1))
            # While a row has seen -inf alone its maximum stays out of the difference of infinities.
            base = tl.where(higher == -float("inf"), 0.0, higher)
            shrink = tl.where(top == -float("inf"), -float("inf"), (top - base) * LOG2_E)
            total = total * tl.exp2(shrink)
            total += tl.sum(tl.exp2((x - base[:, None]) * LOG2_E), axis=1)
            top = higher
        top = tl.where(row_ok, top, 0.0)
        total = tl.where(row_ok, total, 1.0)
        for start in range(0, N, BLOCK_N):
            ok = row_ok[:, None] & (start + columns < N)[None, :]
            at = x_rows + start + columns[None, :]
            x = tl.load(at, mask=ok, other=-float("inf")).to(tl.float32) * scale
            y = tl.exp2((x - top[:, None]) * LOG2_E) / total[:, None]
            out = y_rows + start + columns[None, :]
            tl.store(out, y.to(y_ptr.dtype.element_ty), mask=ok)


@triton.autotune(configs=_configs(), key=["M", "N"])
@triton.heuristics(_SHAPE)
@triton.jit
def softmax_backward(
    dy_ptr,
    y_ptr,
    dx_ptr,
    M,
    N,
    dy_stride,
    y_stride,
    dx_stride,
    scale,
    TILE: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_M: tl.constexpr,
    ONE_BLOCK: tl.constexpr,
):
    """dx = scale * y * (dy - sum(dy * y)) for BLOCK_M rows a program."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    row_ok = rows < M
    wide = rows.to(tl.int64)[:, None]
    columns = tl.arange(0, BLOCK_N)

    if ONE_BLOCK:
        ok = row_ok[:, None] & (columns < N)[None, :]
        dy = tl.load(dy_ptr + wide * dy_stride + columns[None, :], mask=ok, other=0.0).to(
            tl.float32
        )
        y = tl.load(y_ptr + wide * y_stride + columns[None, :], mask=ok, other=0.0).to(tl.float32)
        dot = tl.sum(dy * y, axis=1)
        dx = scale * y * (dy - dot[:, None])
        out = dx_ptr + wide * dx_stride + columns[None, :]
        tl.store(out, dx.to(dx_ptr.dtype.element_ty), mask=ok)
    else:
        products = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for start in range(0, N, BLOCK_N):
            at = start + columns[None, :]
            ok = row_ok[:, None] & (at < N)
            dy = tl.load(dy_ptr + wide * dy_stride + at, mask=ok, other=0.0).to(tl.float32)
            y = tl.load(y_ptr + wide * y_stride + at, mask=ok, other=0.0).to(tl.float32)
            products += dy * y
        dot = tl.sum(products, axis=1)
        for start in range(0, N, BLOCK_N):
            at = start + columns[None, :]
            ok = row_ok[:, None] & (at < N)
            dy = tl.load(dy_ptr + wide * dy_stride + at, mask=ok, other=0.0).to(tl.float32)
            y = tl.load(y_ptr + wide * y_stride + at, mask=ok, other=0.0).to(tl.float32)
            dx = scale * y * (dy - dot[:, None])
            tl.store(dx_ptr + wide * dx_stride + at, dx.to(dx_ptr.dtype.element_ty), mask=ok)
