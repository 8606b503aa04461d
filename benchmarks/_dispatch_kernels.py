"""The kernel whose launches are timed: 12 arguments, 3 of them tensors, and hardly a body."""

import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BM": 64, "BN": 64}, num_warps=4),
    triton.Config({"BM": 128, "BN": 64}, num_warps=4),
]


@triton.jit
def bare(a, b, c, M, N, K, stride_a, stride_b, stride_c, scale, BM: tl.constexpr, BN: tl.constexpr):
    row = tl.program_id(0)
    if row < M:
        value = tl.load(a + row * stride_a) + tl.load(b + row * stride_b)
        tl.store(c + row * stride_c, value * scale + (N + K + BM + BN))


autotuned = triton.autotune(CONFIGS, key=["M", "N", "K"])(bare)
tuned = triton.autotune(CONFIGS, key=["M", "N", "K"])(bare)
tuned_ordinary = triton.autotune(CONFIGS, key=["M", "N", "K"])(bare)


@triton.jit
def scaled(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + offsets, mask=offsets < n).to(tl.float32)
    total = tl.sum(values * values, axis=0)
    tl.store(out + offsets, values * tl.rsqrt(total / n + 1e-6), mask=offsets < n)


def first(count: int):
    """A kernel under autotune with this many configurations."""
    configs = [
        triton.Config({"BLOCK": size}, num_warps=warps, num_stages=stages)
        for size in (256, 512, 1024, 2048)
        for warps in (2, 4, 8, 16)
        for stages in (2, 3)
    ]
    return triton.autotune(configs[:count], key=["n"])(scaled)
