"""The Triton kernels: one forward, one fused backward. All arithmetic is in float32.

Rows are normalised over N columns: `y = x * rstd * w` with `rstd = 1 / sqrt(mean(x^2) + eps)`
(Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019).
"""

import triton
import triton.language as tl


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
def rms_norm_forward(
    x_ptr,
    w_ptr,
    y_ptr,
    rstd_ptr,
    M,
    N,
    x_stride,
    y_stride,
    eps,
    TILE: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_M: tl.constexpr,
    ONE_BLOCK: tl.constexpr,
):
    """Each program normalises BLOCK_M rows. Where a row fits one block it is read once."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    row_ok = rows < M
    x_rows = x_ptr + rows.to(tl.int64)[:, None] * x_stride
    y_rows = y_ptr + rows.to(tl.int64)[:, None] * y_stride
    columns = tl.arange(0, BLOCK_N)

    if ONE_BLOCK:
        ok = row_ok[:, None] & (columns < N)[None, :]
        x = tl.load(x_rows + columns[None, :], mask=ok, other=0.0).to(tl.float32)
        w = tl.load(w_ptr + columns, mask=columns < N, other=0.0).to(tl.float32)
        rstd = 1.0 / tl.sqrt(tl.sum(x * x, axis=1) / N + eps)
        y = x * rstd[:, None] * w[None, :]
        tl.store(y_rows + columns[None, :], y.to(y_ptr.dtype.element_ty), mask=ok)
    else:
        squares = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for start in range(0, N, BLOCK_N):
            ok = row_ok[:, None] & (start + columns < N)[None, :]
            x = tl.load(x_rows + start + columns[None, :], mask=ok, other=0.0).to(tl.float32)
            squares += x * x
        rstd = 1.0 / tl.sqrt(tl.sum(squares, axis=1) / N + eps)
        for start in range(0, N, BLOCK_N):
            inside = start + columns < N
            ok = row_ok[:, None] & inside[None, :]
            x = tl.load(x_rows + start + columns[None, :], mask=ok, other=0.0).to(tl.float32)
            w = tl.load(w_ptr + start + columns, mask=inside, other=0.0).to(tl.float32)
            y = x * rstd[:, None] * w[None, :]
            tl.store(y_rows + start + columns[None, :], y.to(y_ptr.dtype.element_ty), mask=ok)
    tl.store(rstd_ptr + rows, rstd, mask=row_ok)


@triton.autotune(configs=_configs(), key=["M", "N"])
@triton.heuristics(_SHAPE)
@triton.jit
def rms_norm_backward(
    dy_ptr,
    x_ptr,
    w_ptr,
    rstd_ptr,
    dx_ptr,
    dw_ptr,
    M,
    N,
    dy_stride,
    x_stride,
    dx_stride,
    TILE: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_M: tl.constexpr,
    ONE_BLOCK: tl.constexpr,
):
    """dx for every row, and this program's share of dw in row `program_id` of dw_ptr (float32).

    With xhat = x * rstd: dx = rstd * (w*dy - xhat * mean(w*dy*xhat)), dw = sum(dy*xhat) over rows.
    A program takes every `num_programs`-th block of rows, so dw needs no atomics and its sum has
    the same order in every run.
    """
    program = tl.program_id(0)
    columns = tl.arange(0, BLOCK_N)
    dw_row = dw_ptr + program.to(tl.int64) * N
    blocks = tl.cdiv(M, BLOCK_M)

    if ONE_BLOCK:
        inside = columns < N
        w = tl.load(w_ptr + columns, mask=inside, other=0.0).to(tl.float32)
        dw = tl.zeros((BLOCK_N,), dtype=tl.float32)
        for block in range(program, blocks, tl.num_programs(0)):
            rows = block * BLOCK_M + tl.arange(0, BLOCK_M)
            row_ok = rows < M
            ok = row_ok[:, None] & inside[None, :]
            wide = rows.to(tl.int64)[:, None]
            x = tl.load(x_ptr + wide * x_stride + columns[None, :], mask=ok, other=0.0)
            dy = tl.load(dy_ptr + wide * dy_stride + columns[None, :], mask=ok, other=0.0)
            rstd = tl.load(rstd_ptr + rows, mask=row_ok, other=0.0)
            xhat = x.to(tl.float32) * rstd[:, None]
            dy32 = dy.to(tl.float32)
            g = dy32 * w[None, :]
            mean = tl.sum(g * xhat, axis=1) / N
            dx = rstd[:, None] * (g - xhat * mean[:, None])
            out = dx_ptr + wide * dx_stride + columns[None, :]
            tl.store(out, dx.to(dx_ptr.dtype.element_ty), mask=ok)
            dw += tl.sum(dy32 * xhat, axis=0)
        tl.store(dw_row + columns, dw, mask=inside)
    else:
        for start in range(0, N, BLOCK_N):
            tl.store(
                dw_row + start + columns, tl.zeros((BLOCK_N,), tl.float32), mask=start + columns < N
            )
        for block in range(program, blocks, tl.num_programs(0)):
            rows = block * BLOCK_M + tl.arange(0, BLOCK_M)
            row_ok = rows < M
            wide = rows.to(tl.int64)[:, None]
            rstd = tl.load(rstd_ptr + rows, mask=row_ok, other=0.0)
            total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
            for start in range(0, N, BLOCK_N):
                inside = start + columns < N
                ok = row_ok[:, None] & inside[None, :]
                at = start + columns[None, :]
                x = tl.load(x_ptr + wide * x_stride + at, mask=ok, other=0.0).to(tl.float32)
                dy = tl.load(dy_ptr + wide * dy_stride + at, mask=ok, other=0.0).to(tl.float32)
                w = tl.load(w_ptr + start + columns, mask=inside, other=0.0).to(tl.float32)
                total += dy * w[None, :] * x * rstd[:, None]
            mean = tl.sum(total, axis=1) / N
            for start in range(0, N, BLOCK_N):
                inside = start + columns < N
                ok = row_ok[:, None] & inside[None, :]
                at = start + columns[None, :]
                x = tl.load(x_ptr + wide * x_stride + at, mask=ok, other=0.0).to(tl.float32)
                dy = tl.load(dy_ptr + wide * dy_stride + at, mask=ok, other=0.0).to(tl.float32)
                w = tl.load(w_ptr + start + columns, mask=inside, other=0.0).to(tl.float32)
                xhat = x * rstd[:, None]
                dx = rstd[:, None] * (dy * w[None, :] - xhat * mean[:, None])
                tl.store(dx_ptr + wide * dx_stride + at, dx.to(dx_ptr.dtype.element_ty), mask=ok)
                share = dw_row + start + columns
                dw = tl.load(share, mask=inside, other=0.0) + tl.sum(dy * xhat, axis=0)
                tl.store(share, dw, mask=inside)
