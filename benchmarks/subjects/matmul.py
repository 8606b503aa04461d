"""A plain Triton matmul, C = A @ B, with groups of row blocks for reuse in the L2 cache."""

import torch
import triton
import triton.language as tl


def _configs():
    tiles = [
        (16, 64, 128, 4), (16, 128, 64, 4), (16, 128, 128, 4), (32, 64, 64, 4), (32, 128, 64, 4),
        (64, 64, 64, 4), (64, 128, 64, 4), (64, 256, 64, 4), (64, 256, 64, 8),
        (128, 64, 64, 4), (128, 128, 64, 4), (128, 128, 64, 8), (128, 128, 32, 8),
        (128, 256, 64, 8), (256, 128, 64, 8), (256, 64, 64, 4),
    ]  # fmt: skip
    return [
        triton.Config({"BM": m, "BN": n, "BK": k, "GROUP": 8}, num_warps=w, num_stages=s)
        for m, n, k, w in tiles
        for s in (3, 4)
    ]


@triton.autotune(configs=_configs(), key=["M", "N", "K"])
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, a_stride, b_stride, c_stride,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """One tile of C a program; A and B in row-major order."""
    program = tl.program_id(0)
    row_blocks, column_blocks = tl.cdiv(M, BM), tl.cdiv(N, BN)
    in_group = GROUP * column_blocks
    first = program // in_group * GROUP
    height = min(row_blocks - first, GROUP)
    row_block = first + program % in_group % height
    column_block = program % in_group // height
    rows = row_block * BM + tl.arange(0, BM)
    columns = column_block * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    a = a_ptr + (rows % M)[:, None] * a_stride + inner[None, :]
    b = b_ptr + inner[:, None] * b_stride + (columns % N)[None, :]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.cdiv(K, BK)):
        ok = inner < K - step * BK
        x = tl.load(a, mask=ok[None, :], other=0.0)
        y = tl.load(b, mask=ok[:, None], other=0.0)
        total = tl.dot(x, y, total)
        a += BK
        b += BK * b_stride
    c = c_ptr + rows[:, None] * c_stride + columns[None, :]
    inside = (rows < M)[:, None] & (columns < N)[None, :]
    tl.store(c, total.to(c_ptr.dtype.element_ty), mask=inside)


def matmul(a, b):
    """(M, K) @ (K, N) -> (M, N); contiguous, 16-bit."""
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty(m, n, dtype=a.dtype, device=a.device)
    grid = lambda meta: (triton.cdiv(m, meta["BM"]) * triton.cdiv(n, meta["BN"]),)  # noqa: E731
    matmul_kernel[grid](a, b, c, m, n, k, a.stride(0), b.stride(0), c.stride(0))
    return c
