"""Softmax, forward and backward, against float64; without a GPU in Triton's interpreter."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# Relative error in norm; the gradient starts from the rounded result, which is why its limit for
# the short dtypes is the same as that of the result.
LIMIT = {torch.float32: 4e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}
DTYPES = list(LIMIT)
# A row that no block of a GPU holds; the interpreter takes the first configuration, a small one.
LONG = 20000 if DEVICE == "cuda" else 2000
# Rows of several blocks; the interpreter takes blocks of one row, one after the other.
ROWS = 17 if DEVICE == "cuda" else 3


def inputs(shape, dtype, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(*shape, generator=generator).to(DEVICE, dtype) for _ in range(2))


def relative(got, want):
    if not want.numel():
        return 0.0
    return ((got.double() - want).norm() / want.norm().clamp_min(1e-30)).item()


def check(kernel, x, dy, scale=1.0):
    x = x.detach().requires_grad_()
    y = kernel.softmax(x, scale)
    assert (y.shape, y.dtype) == (x.shape, x.dtype)
    y.backward(dy)
    exact = x.detach().double().requires_grad_()
    want = torch.softmax(scale * exact, -1)
    want.backward(dy.double())
    assert relative(y.detach(), want.detach()) < LIMIT[x.dtype]
    # dx is a difference of terms of size y * dy, from y as it was stored. Below the normal numbers
    # of float16 the spacing is 2^-24, whatever the size.
    size = abs(scale) * (want.detach() * dy.double()).norm()
    tiny = 2.0**-25 * dy.numel() ** 0.5 if x.dtype == torch.float16 else 0.0
    assert (x.grad.double() - exact.grad).norm() <= 2 * LIMIT[x.dtype] * size + tiny


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "shape", [(1, 1), (5, 1), (1, 640), (3, 256), (ROWS, 257), (2, 3, 40)], ids=str
)
def test_forward_and_backward(kernel, shape, dtype):
    check(kernel, *inputs(shape, dtype), scale=0.7)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_row_longer_than_a_block(kernel, dtype):
    """The row does not fit any block: the running maximum and sum are used."""
    x, dy = inputs((2, LONG), dtype)
    x[0, -1] = 20.0  # the maximum comes last, so the sum so far has to be scaled down
    check(kernel, x, dy)


@settings(max_examples=settings.default.max_examples // 10)
@given(
    rows=st.integers(1, 9),
    columns=st.integers(2, 700),
    dtype=st.sampled_from(DTYPES),
    # Not next to nothing, where float16 gradients underflow and relative errors mean nothing.
    scale=st.sampled_from((-2.0, -0.7, 0.25, 1.0, 2.0)),
    seed=st.integers(0, 2**16),
)
def test_any_shape(kernel, rows, columns, dtype, scale, seed):
    check(kernel, *inputs((rows, columns), dtype, seed), scale=scale)


@pytest.mark.parametrize("shape", [(0, 8), (3, 0)], ids=str)
def test_empty(kernel, shape):
    x = torch.ones(shape, device=DEVICE, requires_grad=True)
    y = kernel.softmax(x)
    y.sum().backward()
    assert y.shape == x.grad.shape == x.shape


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_strided(kernel, dtype):
    x, dy = inputs((6, 20), dtype)
    check(kernel, x[:, :12], dy[:, 4:16])
    check(kernel, x.t(), dy.t())
    check(kernel, x[::2], dy[:1].expand(3, 20))


def test_every_element_is_written(kernel, monkeypatch):
    """Memory that the function asks for is poisoned: what is left of it shows."""
    make = torch.empty_like
    monkeypatch.setattr(
        torch, "empty_like", lambda *args, **kwargs: make(*args, **kwargs).fill_(float("nan"))
    )
    for shape in ((5, 300), (2, LONG)):
        check(kernel, *inputs(shape, torch.float32))


@pytest.mark.parametrize("columns", [5, LONG])
def test_infinities(kernel, columns):
    """-inf is a masked column; a row of nothing else has no softmax and gives NaN, as in torch."""
    x = torch.zeros(3, columns, device=DEVICE)
    x[0, : columns - 1] = -float("inf")
    x[1] = -float("inf")
    x[2, 0] = -float("inf")
    y = kernel.softmax(x)
    assert y[0, -1] == 1.0
    assert y[0, :-1].abs().max() == 0.0
    assert y[1].isnan().all()
    torch.testing.assert_close(y[2], torch.softmax(x[2], -1))


def test_large_values_do_not_overflow(kernel):
    x, dy = inputs((4, 100), torch.float32)
    check(kernel, x + 1e4, dy)
    check(kernel, x * 100, dy)


def test_scale_of_zero_is_uniform(kernel):
    y = kernel.softmax(inputs((3, 50), torch.float32)[0], 0.0)
    torch.testing.assert_close(y, torch.full_like(y, 1 / 50))


class TestRefusals:
    def test_dtype(self, kernel):
        with pytest.raises(ValueError, match=r"x must have a dimension and be float32.*int64"):
            kernel.softmax(torch.ones(2, 2, dtype=torch.int64))

    def test_no_dimension(self, kernel):
        with pytest.raises(ValueError, match="x must have a dimension"):
            kernel.softmax(torch.tensor(1.0))

    def test_second_derivative(self, kernel):
        x = torch.randn(2, 8, requires_grad=True)
        (dx,) = torch.autograd.grad(kernel.softmax(x).pow(3).sum(), x, create_graph=True)
        with pytest.raises(RuntimeError, match="once_differentiable"):
            dx.pow(2).sum().backward()
