"""Kernels and what they must compute; run in a child process, since the mode is the process's.

`python cases.py` prints one JSON object: case name -> null, or the traceback of its failure.
"""

from __future__ import annotations

import json
import threading
import traceback

import pytest

from kernelhub import interpreter
from kernelhub.errors import LoadError

if __name__ == "__main__":
    interpreter.enable()

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice
from triton.tools.tensor_descriptor import TensorDescriptor

BF16 = torch.bfloat16
CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def rand(*shape, dtype=BF16, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float32).to(dtype)


@triton.jit
def elementwise(x_ptr, y_ptr, out_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    x, y = tl.load(x_ptr + at), tl.load(y_ptr + at)
    tl.store(out_ptr + at, x + y)
    tl.store(out_ptr + N + at, x - y)
    tl.store(out_ptr + 2 * N + at, x * y)
    tl.store(out_ptr + 3 * N + at, x / y)
    tl.store(out_ptr + 4 * N + at, tl.minimum(x, y))
    tl.store(out_ptr + 5 * N + at, tl.maximum(x, y))
    tl.store(out_ptr + 6 * N + at, tl.where(x < y, -x, tl.abs(y)))
    tl.store(out_ptr + 7 * N + at, tl.where((x >= y) | (x == 0.1), x + 1, y * 0.1))


@case
def bf16_arithmetic_is_rounded_after_each_operation():
    x, y = rand(64, seed=1), rand(64, seed=2)
    out = torch.empty(8, 64, dtype=BF16)
    elementwise[(1,)](x, y, out, N=64)
    wanted = [x + y, x - y, x * y, x.double().div(y.double()).to(BF16), torch.minimum(x, y)]
    wanted += [torch.maximum(x, y), torch.where(x < y, -x, y.abs())]
    wanted += [torch.where(x >= y, x + 1, y * torch.tensor(0.1, dtype=BF16))]
    assert torch.equal(out, torch.stack(wanted))


@triton.jit
def softmax(x_ptr, out_ptr, N: tl.constexpr):
    at = tl.program_id(0) * N + tl.arange(0, N)
    x = tl.load(x_ptr + at)
    x = tl.exp((x - tl.max(x, axis=0)).to(tl.float32))
    tl.store(out_ptr + at, x / tl.sum(x, axis=0))


@case
def bf16_softmax_agrees_with_float64():
    x = rand(8, 128)
    out = torch.empty_like(x)
    softmax[(8,)](x, out, N=128)
    torch.testing.assert_close(out.double(), x.double().softmax(-1), atol=1e-4, rtol=2e-2)


@triton.jit
def matmul(a_ptr, b_ptr, c_ptr, N: tl.constexpr):
    at = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    c = tl.dot(tl.load(a_ptr + at), tl.load(b_ptr + at))
    tl.store(c_ptr + at, c.to(c_ptr.dtype.element_ty))


@case
def dot_agrees_with_float64():
    for dtype in (BF16, torch.float8_e5m2, torch.float8_e4m3fn):
        a, b = rand(32, 32, seed=1).to(dtype), rand(32, 32, seed=2).to(dtype)
        c = torch.empty(32, 32, dtype=torch.float32)
        matmul[(1,)](a, b, c, N=32)
        torch.testing.assert_close(c.double(), a.double() @ b.double(), atol=1e-4, rtol=1e-4)


@triton.jit
def cast(x_ptr, out_ptr, N: tl.constexpr, KIND: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out_ptr + at, tl.load(x_ptr + at).to(KIND))


FLOATS = {
    torch.float32: tl.float32,
    torch.float16: tl.float16,
    BF16: tl.bfloat16,
    torch.float8_e4m3fn: tl.float8e4nv,
    torch.float8_e5m2: tl.float8e5,
}


@case
def casts_between_floats_round_to_nearest_even():
    values = torch.cat([rand(1000, dtype=torch.float32) * 8, torch.tensor([0.0, -0.0, 448, 1e-9])])
    values = torch.cat([values, torch.linspace(-(2**-6), 2**-6, 1024 - values.numel())])
    for source in FLOATS:
        x = values.to(source)
        for target, kind in FLOATS.items():
            out = torch.empty(1024, dtype=target)
            cast[(1,)](x, out, N=1024, KIND=kind)
            assert torch.equal(out.float(), x.to(target).float()), (source, target)


@case
def narrow_floats_widen_exactly():
    for source in (torch.float8_e4m3fn, torch.float8_e5m2):
        x = torch.arange(256, dtype=torch.uint8).view(source)
        for target in (torch.float32, torch.float16, BF16):
            out = torch.empty(256, dtype=target)
            cast[(1,)](x, out, N=256, KIND=FLOATS[target])
            torch.testing.assert_close(out.float(), x.float(), rtol=0, atol=0, equal_nan=True)


@case
def eight_bit_floats_saturate():
    x = torch.tensor([1e9, -1e9, 500.0, float("inf")])
    out = torch.empty(4, dtype=torch.float8_e4m3fn)
    cast[(1,)](x, out, N=4, KIND=tl.float8e4nv)
    assert out.float().tolist() == [448.0, -448.0, 448.0, 448.0]


@case
def integers_and_float64_reach_bf16():
    for dtype in (torch.int8, torch.int32, torch.int64, torch.uint8):
        x = torch.arange(0, 128).to(dtype)
        out = torch.empty(128, dtype=BF16)
        cast[(1,)](x, out, N=128, KIND=tl.bfloat16)
        assert torch.equal(out, x.to(BF16)), dtype
        back = torch.empty_like(x)
        cast[(1,)](out, back, N=128, KIND=getattr(tl, str(dtype).removeprefix("torch.")))
        assert torch.equal(back, out.to(dtype)), dtype
    x = rand(64).double() / 3
    out = torch.empty(64, dtype=BF16)
    cast[(1,)](x, out, N=64, KIND=tl.bfloat16)
    assert torch.equal(out, x.to(BF16))
    wide = torch.empty(64, dtype=torch.float64)
    cast[(1,)](out, wide, N=64, KIND=tl.float64)
    assert torch.equal(wide, out.double())


@triton.jit
def add_combine(a, b):
    return a + b


@triton.jit
def reductions(x_ptr, out_ptr, scan_ptr, where_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    x = tl.load(x_ptr + at)
    tl.store(out_ptr, tl.sum(x, axis=0))
    tl.store(out_ptr + 1, tl.max(x, axis=0))
    tl.store(out_ptr + 2, tl.min(x, axis=0))
    tl.store(out_ptr + 3, tl.reduce(x, 0, add_combine))
    tl.store(out_ptr + 4, x.sum(axis=0))
    tl.store(where_ptr, tl.argmax(x, axis=0))
    tl.store(scan_ptr + at, tl.associative_scan(x, 0, add_combine))
    tl.store(scan_ptr + N + at, tl.cumsum(x, axis=0).to(x.dtype))


@case
def bf16_reductions_and_scans():
    x = torch.tensor([1.0, -2.0, 4.0, 0.5, -8.0, 16.0, 3.0, 1.0], dtype=BF16)
    out, where = torch.empty(5, dtype=BF16), torch.empty(1, dtype=torch.int32)
    scan = torch.empty(2, 8, dtype=BF16)
    reductions[(1,)](x, out, scan, where, N=8)
    total = x.sum().item()
    assert out.tolist() == [total, 16.0, -8.0, total, total]
    assert where.item() == 5
    assert torch.equal(scan, x.cumsum(0).expand(2, 8))


@triton.jit
def accumulate(x_ptr, out_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    x = tl.load(x_ptr + at)
    tl.atomic_add(out_ptr + at % 2, x, mask=at < N - 1)


@case
def bf16_atomics_add_every_lane_once():
    x, out = torch.ones(8, dtype=BF16), torch.zeros(3, dtype=BF16)
    accumulate[(2,)](x, out, N=8)
    assert out.tolist() == [8.0, 6.0, 0.0]


@triton.jit
def small(x_ptr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, N))
    tl.device_assert(x < 100, "value too big")


@case
def device_assert_raises_and_names_the_kernel():
    small[(1,)](torch.arange(16), N=16)
    with pytest.raises(interpreter.AssertionFailed, match=r"'small'.*value too big"):
        small[(1,)](torch.arange(16) + 90, N=16)


@triton.jit
def scramble(x_ptr, out_ptr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, N))
    tl.store(out_ptr + tl.arange(0, N), x * 2654435761 + 2147483647)


@case
def integer_overflow_wraps_as_compiled():
    x = torch.arange(1, 9, dtype=torch.int64).to(torch.uint32)
    out = torch.empty_like(x)
    scramble[(1,)](x, out, N=8)
    wanted = [(v * 2654435761 + 2147483647) % 2**32 for v in range(1, 9)]
    assert out.tolist() == wanted


@triton.jit
def copy(x_ptr, out_ptr, n, N: tl.constexpr):
    at = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < n, other=0), mask=at < n)


@case
def access_outside_a_tensor_names_kernel_and_argument():
    x, out = torch.randn(10), torch.empty(10)
    copy[(1,)](x, out, 10, N=64)
    with pytest.raises(interpreter.OutOfBounds, match=r"'copy' reads outside 'x_ptr': 1 of 11"):
        copy[(1,)](x, out, 11, N=64)
    with pytest.raises(interpreter.OutOfBounds, match=r"writes outside 'out_ptr': 2 of 10 .*\(0, "):
        copy[(1,)](x, torch.empty(8), 10, N=64)
    with pytest.raises(IndexError, match="before its start"):
        backwards[(1,)](x, out_ptr=out)


@triton.jit
def backwards(x_ptr, out_ptr):
    tl.store(out_ptr, tl.load(x_ptr - 1))


@case
def a_neighbouring_tensor_is_outside():
    storage = torch.zeros(64)
    neighbours = torch.empty(0).set_(storage.untyped_storage(), 0, (64,))
    x, out = torch.zeros(4), torch.zeros(4)
    far = (out.data_ptr() - x.data_ptr()) // 4  # the address of `out`, reached through `x`
    with pytest.raises(interpreter.OutOfBounds, match="'x_ptr'"):
        offset_copy[(1,)](x, out, far)
    offset_copy[(1,)](neighbours[8:], out, -8)  # a view may reach its whole storage


@triton.jit
def offset_copy(x_ptr, out_ptr, offset):
    tl.store(out_ptr, tl.load(x_ptr + offset))


@triton.jit
def choose(x_ptr, y_ptr, addresses_ptr, out_ptr, index, first):
    pointer = tl.where(first, x_ptr, y_ptr)
    tl.store(out_ptr, tl.load(pointer + index))
    address = tl.load(addresses_ptr).to(tl.pointer_type(tl.float32))
    tl.store(out_ptr + 1, tl.load(address))


@case
def selected_pointers_are_checked_and_made_ones_are_not():
    x, y, hidden = torch.ones(4), torch.full((4,), 2.0), torch.full((1,), 3.0)
    out = torch.zeros(2)
    addresses = torch.tensor([hidden.data_ptr()])
    choose[(1,)](x, y, addresses, out, 3, False)
    assert out.tolist() == [2.0, 3.0]
    with pytest.raises(interpreter.OutOfBounds, match="'x_ptr' or 'y_ptr'"):
        choose[(1,)](x, y, addresses, out, 2**20, True)


@triton.jit
def blocks(x_ptr, out_ptr, n, N: tl.constexpr):
    total = tl.zeros([N], tl.float32)
    for start in range(0, tl.cdiv(n, N)):  # noqa: PIE808 - two bounds are the fault
        at = start * N + tl.arange(0, N)
        total += tl.load(x_ptr + at, mask=at < n, other=0.0)
    tl.store(out_ptr, tl.sum(total, axis=0))


@case
def loops_run_over_computed_bounds():
    x, out = torch.ones(10), torch.empty(1)
    blocks[(1,)](x, out, 10, N=4)
    assert out.item() == 10.0


@triton.jit
def described(desc, out_ptr, M, N: tl.constexpr):
    x = desc.load([0, 0])
    desc.store([0, 0], x + x)
    device = tl.make_tensor_descriptor(out_ptr, shape=[M, N], strides=[N, 1], block_shape=[4, N])
    device.store([0, 0], x * x)


@case
def bf16_descriptors_of_both_kinds():
    x = rand(3, 16)
    before, out = x.clone(), torch.zeros(3, 16, dtype=BF16)
    described[(1,)](TensorDescriptor.from_tensor(x, [4, 16]), out, 3, N=16)
    assert torch.equal(x, before + before)
    assert torch.equal(out, before * before)
    with pytest.raises(interpreter.OutOfBounds, match="'out_ptr'"):
        described[(1,)](TensorDescriptor.from_tensor(x, [4, 16]), out, 4, N=16)
    with pytest.raises(interpreter.OutOfBounds, match="'desc'"):
        described[(1,)](TensorDescriptor(x, [4, 16], [16, 1], [4, 16]), out, 3, N=16)


@triton.autotune(
    [triton.Config({"N": n}) for n in (4, 8, 16)], key=["n"], reset_to_zero=["out_ptr"]
)
@triton.heuristics({"EVEN": lambda args: args["n"] % args["N"] == 0})
@triton.jit
def tuned(x_ptr, out_ptr, n, N: tl.constexpr, EVEN: tl.constexpr):
    tl.static_assert(N >= 8, "a bigger block please")
    at = tl.program_id(0) * N + tl.arange(0, N)
    tl.atomic_add(out_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)


@case
def autotuned_kernels_run_their_first_valid_configuration_once():
    x, out = torch.ones(10), torch.zeros(10)
    tuned[lambda meta: (triton.cdiv(10, meta["N"]),)](x, out, 10)
    assert out.tolist() == [1.0] * 10
    assert tuned.best_config.kwargs == {"N": 8}
    tuned.cache[(12, "torch.float32", "torch.float32")] = tuned.configs[2]
    tuned[lambda meta: (triton.cdiv(12, meta["N"]),)](torch.ones(12), torch.zeros(12), 12)
    assert tuned.best_config.kwargs == {"N": 16}


@triton.autotune([triton.Config({"N": n}) for n in (4, 8)], key=[])
@triton.jit
def never(x_ptr, N: tl.constexpr):
    tl.static_assert(N > 100)


@case
def autotuning_ends_where_no_configuration_is_valid():
    with pytest.raises(triton.runtime.errors.InterpreterError, match="AssertionError"):
        never[(1,)](torch.ones(4))


@triton.jit
def device_library(x_ptr):
    tl.store(x_ptr, libdevice.tanh(tl.load(x_ptr)))


@triton.jit
def assembly(x_ptr):
    x = tl.load(x_ptr)
    y = tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [x], tl.int32, True, 1)
    tl.store(x_ptr, y)


@case
def what_only_a_gpu_has_is_refused_by_name():
    with pytest.raises(interpreter.NotInterpretable, match=r"'device_library' uses libdevice.tanh"):
        device_library[(1,)](torch.ones(1))
    with pytest.raises(interpreter.NotInterpretable, match="'assembly' uses inline assembly"):
        assembly[(1,)](torch.ones(1, dtype=torch.int32))


@triton.jit
def bits(x_ptr, out_ptr, flag, N: tl.constexpr):
    at = tl.arange(0, N)
    x = tl.load(x_ptr + at)
    set_ = x > 0
    tl.store(out_ptr + at, (set_ + set_).to(tl.int32))
    tl.store(out_ptr + N + at, tl.where(flag, tl.minimum(x, 2.0), 0.0))


@case
def one_bit_integers_wrap_and_minimum_drops_nan():
    x, out = torch.tensor([1.0, float("nan")]), torch.zeros(2, 2)
    bits[(1,)](x, out, True, N=2)
    assert out.tolist() == [[0.0, 0.0], [1.0, 2.0]]


@triton.jit
def infinite(x_ptr, out_ptr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, N))
    tl.store(out_ptr + tl.arange(0, N), tl.exp(x - x) / (x * 0))


@case
def infinities_do_not_warn():
    x, out = torch.tensor([float("inf"), 1.0]), torch.empty(2)
    infinite[(1,)](x, out, N=2)
    assert out[0].isnan()
    assert out[1].isinf()


@case
def threads_may_launch_at_once():
    failures = []

    def work(seed):
        try:
            for _ in range(10):
                x = rand(4, 128, seed=seed)
                out = torch.empty_like(x)
                softmax[(4,)](x, out, N=128)
                torch.testing.assert_close(
                    out.double(), x.double().softmax(-1), atol=1e-4, rtol=2e-2
                )
        except BaseException as error:  # noqa: BLE001 - carried to the main thread
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@case
def every_patch_finds_its_names():
    from kernelhub.interpreter import patches

    assert [p.name for p in patches.PATCHES if patches.missing(p)] == []


@case
def enabling_again_changes_nothing():
    before = triton.runtime.interpreter.InterpreterBuilder.create_fadd
    interpreter.enable()
    assert triton.runtime.interpreter.InterpreterBuilder.create_fadd is before
    assert interpreter.enabled()


@case
def wrong_arithmetic_is_noticed():  # last: it breaks the interpreter
    builder = triton.runtime.interpreter.InterpreterBuilder
    right = builder.create_fadd
    builder.create_fadd = lambda self, a, b: self.binary_op(a, b, lambda x, y: x + y)
    try:
        with pytest.raises(LoadError, match="bf16 arithmetic gave"):
            interpreter.verify()
    finally:
        builder.create_fadd = right


def outcome(function):
    try:
        function()
    except BaseException:  # noqa: BLE001 - reported to the parent, whatever it is
        return traceback.format_exc()
    return None


if __name__ == "__main__":
    print(json.dumps({name: outcome(function) for name, function in CASES.items()}))
