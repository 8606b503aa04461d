"""RMS norm, forward and backward, against float64; without a GPU in Triton's interpreter."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# Relative error in norm. The inputs are exact in float64, so what is left is the rounding of the
# result to its dtype (unit roundoff 2^-24, 2^-11, 2^-8) and of float32 sums.
LIMIT = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}
DTYPES = list(LIMIT)
# A row that no block of a GPU holds; the interpreter takes the first configuration, a small one.
LONG = 20000 if DEVICE == "cuda" else 2000
# Rows of several blocks; the interpreter takes blocks of one row, one after the other.
ROWS = 17 if DEVICE == "cuda" else 3
EPS = 1e-6


def reference(x, weight, dy, eps):
    """(value, size) of y, dx and dweight in float64; errors are relative to the size.

    dx is a difference, so its size is that of its first term: in a row of one column the two terms
    cancel but for eps.
    """
    x, weight, dy = (t.detach().double() for t in (x, weight, dy))
    rstd = ((x * x).mean(-1, keepdim=True) + eps).rsqrt()
    xhat, g = x * rstd, dy * weight
    dx = rstd * (g - xhat * (g * xhat).mean(-1, keepdim=True))
    dweight = (dy * xhat).flatten(0, -2).sum(0)
    y = xhat * weight
    return (y, y.norm()), (dx, (rstd * g).norm()), (dweight, dweight.norm())


def inputs(shape, dtype, seed=0):
    generator = torch.Generator().manual_seed(seed)

    def normal(*size):
        return torch.randn(*size, generator=generator).to(DEVICE, dtype)

    return normal(*shape), normal(shape[-1]), normal(*shape)


def check(kernel, x, weight, dy, eps=EPS):
    x, weight = x.detach().requires_grad_(), weight.detach().requires_grad_()
    y = kernel.rms_norm(x, weight, eps)
    assert (y.shape, y.dtype) == (x.shape, x.dtype)
    y.backward(dy)
    want = reference(x, weight, dy, eps)
    for name, got, (exact, size) in zip(
        ("y", "dx", "dw"), (y, x.grad, weight.grad), want, strict=True
    ):
        error = (got.detach().double() - exact).norm() / size
        assert error < LIMIT[got.dtype], f"{name}: relative error {error:.1e}"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "shape", [(1, 1), (5, 1), (1, 640), (3, 256), (ROWS, 257), (2, 3, 40)], ids=str
)
def test_forward_and_backward(kernel, shape, dtype):
    check(kernel, *inputs(shape, dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_row_longer_than_a_block(kernel, dtype):
    """The row does not fit any block: the loop over a row is taken."""
    check(kernel, *inputs((2, LONG), dtype))


@settings(max_examples=settings.default.max_examples // 10)
@given(
    rows=st.integers(1, 9),
    columns=st.integers(1, 700),
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 2**16),
)
def test_any_shape(kernel, rows, columns, dtype, seed):
    check(kernel, *inputs((rows, columns), dtype, seed))


@pytest.mark.parametrize("shape", [(0, 8), (3, 0), (2, 0, 4)], ids=str)
def test_empty(kernel, shape):
    x = torch.ones(shape, device=DEVICE, requires_grad=True)
    weight = torch.ones(shape[-1], device=DEVICE, requires_grad=True)
    y = kernel.rms_norm(x, weight)
    y.sum().backward()
    assert y.shape == x.grad.shape == x.shape
    assert torch.equal(weight.grad, torch.zeros_like(weight))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_strided(kernel, dtype):
    """Columns of a wider tensor, and a transposed one, whose rows are not contiguous."""
    x, weight, dy = inputs((6, 20), dtype)
    check(kernel, x[:, :12], weight[:12], dy[:, 4:16])
    check(kernel, x.t(), weight[:6].contiguous(), dy.t())
    check(kernel, x[::2], torch.stack([weight, weight], 1)[:, 0], dy[::2])


def test_upstream_gradient_of_stride_zero(kernel):
    x, weight, _ = inputs((4, 33), torch.float32)
    check(kernel, x, weight, torch.ones(1, 1, device=DEVICE).expand(4, 33))


def test_mixed_dtypes(kernel):
    x, _, dy = inputs((4, 128), torch.bfloat16)
    check(kernel, x, torch.randn(128, device=DEVICE), dy)


def test_every_element_is_written(kernel, monkeypatch):
    """Memory that the function asks for is poisoned: what is left of it shows."""
    made = torch.empty, torch.empty_like

    def poisoned(make):
        return lambda *args, **kwargs: make(*args, **kwargs).fill_(float("nan"))

    monkeypatch.setattr(torch, "empty", poisoned(made[0]))
    monkeypatch.setattr(torch, "empty_like", poisoned(made[1]))
    for shape in ((5, 300), (2, LONG)):
        x, weight, dy = inputs(shape, torch.float32)
        check(kernel, x, weight, dy)


def test_zero_rows_and_eps(kernel):
    x, weight, dy = inputs((3, 64), torch.float32)
    x[1] = 0.0
    check(kernel, x, weight, dy, eps=1e-2)


def test_large_values_do_not_overflow(kernel):
    x, weight, dy = inputs((2, 512), torch.float16)
    check(kernel, x * 2.0**10, weight, dy)


def test_the_same_every_time(kernel):
    x, weight, dy = inputs((2 * ROWS, 130), torch.float32)
    grads = []
    for _ in range(2):
        leaf, scale = x.clone().requires_grad_(), weight.clone().requires_grad_()
        kernel.rms_norm(leaf, scale).backward(dy)
        grads.append((leaf.grad, scale.grad))
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))


class TestRefusals:
    def test_dtype(self, kernel):
        with pytest.raises(ValueError, match=r"x must have a dimension and be float32.*int64"):
            kernel.rms_norm(torch.ones(2, 2, dtype=torch.int64), torch.ones(2))

    def test_no_dimension(self, kernel):
        with pytest.raises(ValueError, match="x must have a dimension"):
            kernel.rms_norm(torch.tensor(1.0), torch.ones(1))

    def test_weight_of_another_length(self, kernel):
        with pytest.raises(ValueError, match=r"weight must be \(4,\) .* not \(3,\)"):
            kernel.rms_norm(torch.ones(2, 4), torch.ones(3))

    def test_weight_elsewhere(self, kernel):
        with pytest.raises(ValueError, match="weight is on meta"):
            kernel.rms_norm(torch.ones(2, 4), torch.ones(4, device="meta"))

    def test_second_derivative(self, kernel):
        x = torch.randn(2, 8, requires_grad=True)
        (dx,) = torch.autograd.grad(
            kernel.rms_norm(x, torch.ones(8)).pow(3).sum(), x, create_graph=True
        )
        with pytest.raises(RuntimeError, match="once_differentiable"):
            dx.pow(2).sum().backward()
