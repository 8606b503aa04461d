"""Autotuned kernels."""

import triton
import triton.language as tl

calls = []
SCALE: tl.constexpr = tl.constexpr(2)


def note(arguments):
    calls.append(("pre_hook", arguments["BLOCK"]))


def keep_small(configs, named_args, **kwargs):
    n = {**named_args, **kwargs}["n"]
    calls.append(("prune", n))
    return [config for config in configs if config.kwargs["BLOCK"] <= n]


def guess(BLOCK, n, **_):
    return abs(BLOCK - n)


def blocks(*sizes, **options):
    return [triton.Config({"BLOCK": size}, num_warps=4, **options) for size in sizes]


@triton.jit
def double(value):
    # Called by the kernels below.
    return value * SCALE


@triton.jit
def plain(x, out, n, scale, FLAG: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + offsets, mask=offsets < n) * scale
    if FLAG:
        values = double(values)
    tl.store(out + offsets, values, mask=offsets < n)


scale = triton.autotune(configs=blocks(128, 256, 512), key=["n"])(plain)


@triton.autotune(configs=blocks(64, 128, 256), key=["n"])
@triton.jit
def middle(x, out, BLOCK: tl.constexpr, n, bias=None):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + offsets, mask=offsets < n)
    if bias is not None:
        values += tl.load(bias + offsets, mask=offsets < n)
    tl.store(out + offsets, values, mask=offsets < n)


@triton.autotune(
    configs=blocks(64, 128, 256),
    key=["n"],
    prune_configs_by={"early_config_prune": keep_small},
    reset_to_zero=["out"],
    restore_value=["x"],
)
@triton.jit
def pruned(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out + offsets, tl.load(x + offsets, mask=offsets < n), mask=offsets < n)
    tl.store(x + offsets, tl.zeros([BLOCK], tl.float32), mask=offsets < n)


@triton.autotune(
    configs=blocks(64, 128, 256), key=["n"], prune_configs_by={"perf_model": guess, "top_k": 0.4}
)
@triton.jit
def modelled(x, out, n, len, BLOCK: tl.constexpr):  # noqa: A002
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets, mask=offsets < n) + len, mask=offsets < n)


@triton.autotune(configs=blocks(64, 128, pre_hook=note), key=["n"])
@triton.jit
def hooked(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets, mask=offsets < n), mask=offsets < n)


@triton.autotune(configs=blocks(64, 128, 256), key=["n"])
@triton.heuristics({"EVEN": lambda arguments: arguments["n"] % arguments["BLOCK"] == 0})
@triton.jit
def inner_heuristics(x, out, n, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(out + offsets, tl.load(x + offsets))
    else:
        tl.store(out + offsets, tl.load(x + offsets, mask=offsets < n), mask=offsets < n)


@triton.heuristics({"MANY": lambda arguments: arguments["n"] > 1000})
@triton.autotune(configs=blocks(64, 128, 256), key=["n"])
@triton.jit
def outer_heuristics(x, out, n, MANY: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + offsets, mask=offsets < n)
    tl.store(out + offsets, values + MANY, mask=offsets < n)


@triton.autotune(
    configs=[
        triton.Config({"BLOCK": 64}, num_warps=4),
        # Asks for 256 KiB of shared memory: more than an H200 block may have.
        triton.Config({"BLOCK": 256}, num_warps=8, num_stages=2),
    ],
    key=["n"],
)
@triton.jit
def matmul(a, b, c, n, BLOCK: tl.constexpr):
    rows, inner = tl.arange(0, BLOCK), tl.arange(0, 256)
    total = tl.zeros([BLOCK, BLOCK], tl.float32)
    for step in range(0, n, 256):
        left = tl.load(a + rows[:, None] * n + (step + inner)[None, :])
        right = tl.load(b + (step + inner)[:, None] * BLOCK + rows[None, :])
        total = tl.dot(left, right, total)
    tl.store(c + rows[:, None] * BLOCK + rows[None, :], total)
