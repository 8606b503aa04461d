"""The fused product against float64, its gradients too; without a TPU in interpret mode."""

from __future__ import annotations

import importlib
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

# Relative error in norm: float32 sums, and one rounding of the result (unit roundoff 2^-8 in bf16).
LIMIT = {"float32": 4e-6, "bfloat16": 8e-3}
ACTIVATIONS = ("none", "relu", "silu", "gelu")


def activate(z, activation):
    """The activation and its derivative, in float64."""
    if activation == "none":
        return z, np.ones_like(z)
    if activation == "relu":
        return np.maximum(z, 0), (z > 0).astype(z.dtype)
    if activation == "silu":
        s = 1 / (1 + np.exp(-z))
        return z * s, s * (1 + z * (1 - s))
    c = np.sqrt(2 / np.pi)
    t = np.tanh(c * (z + 0.044715 * z**3))
    return 0.5 * z * (1 + t), 0.5 * (1 + t) + 0.5 * z * (1 - t * t) * c * (1 + 3 * 0.044715 * z * z)


def reference(x, w, bias, dy, activation):
    """y, dx, dw and dbias in float64."""
    x, w, bias, dy = (np.asarray(a, np.float64) for a in (x, w, bias, dy))
    y, slope = activate(x @ w + bias, activation)
    count = math.prod(x.shape[:-1])
    dz = (dy * slope).reshape(count, w.shape[1])
    rows = x.reshape(count, w.shape[0])
    return y, (dz @ w.T).reshape(x.shape), rows.T @ dz, dz.sum(0)


def inputs(shape, columns, dtype, seed=0):
    """x, w, bias, dy, made by numpy: jax.random is compiled anew for each shape."""
    random = np.random.default_rng(seed)
    sizes = (shape, (shape[-1], columns), (columns,), (*shape[:-1], columns))
    return [jnp.asarray(random.standard_normal(size), dtype) for size in sizes]


def check(kernel, x, w, bias, dy, activation, slack=1.0):
    y, pull = jax.vjp(lambda *args: kernel.fused_matmul(*args, activation=activation), x, w, bias)
    assert y.dtype == x.dtype
    want = reference(x, w, bias, dy, activation)
    assert y.shape == want[0].shape
    for name, got, exact in zip(("y", "dx", "dw", "db"), (y, *pull(dy)), want, strict=True):
        close(name, got, exact, slack)


def close(name, got, exact, slack=1.0):
    error = np.linalg.norm(np.asarray(got, np.float64) - exact)
    limit = LIMIT[got.dtype.name] * slack * max(np.linalg.norm(exact), 1e-30)
    assert error <= limit, f"{name}: error {error:.1e}, limit {limit:.1e}"


@pytest.mark.parametrize(
    ("dtype", "activation"),
    [*(("float32", name) for name in ACTIVATIONS), ("bfloat16", "none"), ("bfloat16", "gelu")],
)
def test_forward_and_backward(kernel, dtype, activation):
    # bfloat16: relu's slope jumps and dz is rounded once more on its way into the products
    check(
        kernel, *inputs((40, 72), 56, dtype), activation, slack=1.0 if dtype == "float32" else 4.0
    )


@pytest.mark.parametrize(("shape", "columns"), [((1, 30), 5), ((2, 3, 1), 1)])
def test_one_row_or_column(kernel, shape, columns):
    check(kernel, *inputs(shape, columns, "float32"), "silu")


def test_several_blocks_with_rests(kernel):
    """More than one block on every axis, none of them whole. Gradients are such products too."""
    x, w, bias, dy = inputs((260, 520), 257, "float32")
    close("y", kernel.fused_matmul(x, w, bias), reference(x, w, bias, dy, "none")[0])


@pytest.mark.slow  # each example is compiled for seconds; the shapes by name are in every run
@settings(max_examples=settings.default.max_examples // 10)
@given(
    rows=st.integers(1, 40),
    inner=st.integers(1, 40),
    columns=st.integers(1, 40),
    activation=st.sampled_from(("none", "silu", "gelu")),
    seed=st.integers(0, 2**16),
)
def test_any_shape(kernel, rows, inner, columns, activation, seed):
    check(kernel, *inputs((rows, inner), columns, "float32", seed), activation, slack=4.0)


@pytest.mark.parametrize(("shape", "columns"), [((0, 8), 4), ((3, 0), 4), ((3, 8), 0)])
def test_empty(kernel, shape, columns):
    x, w, bias, dy = inputs(shape, columns, "float32")
    check(kernel, x, w, bias, dy, "none")


def test_no_bias(kernel):
    x, w, bias, _ = inputs((40, 72), 56, "float32")
    with_zeros = kernel.fused_matmul(x, w, jnp.zeros_like(bias))
    assert jnp.array_equal(kernel.fused_matmul(x, w), with_zeros)


def test_jit_and_vmap(kernel):
    x, w, bias, _ = inputs((2, 4, 9), 5, "float32")
    plain = kernel.fused_matmul(x, w, bias, "relu")
    mapped = jax.jit(jax.vmap(lambda row: kernel.fused_matmul(row, w, bias, "relu")))(x)
    np.testing.assert_allclose(mapped, plain, rtol=1e-6, atol=1e-6)


def test_transposed_operand(kernel):
    x, w, bias, dy = inputs((40, 72), 56, "float32")
    check(kernel, x, jnp.asarray(np.asarray(w).T.copy()).T, bias, dy, "none")


@pytest.mark.slow
@pytest.mark.parametrize("chip", ["TPU v4", "TPU v5 lite", "TPU v6 lite", "TPU7x"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_configuration_lowers(kernel, chip, dtype):
    module = importlib.import_module(f"{kernel.__name__}.kernel")
    device = jax.sharding.AbstractDevice(device_kind=chip, num_cores=1, platform="tpu")
    mesh = jax.sharding.AbstractMesh((), (), abstract_device=device)
    arrays = [jax.ShapeDtypeStruct(s, dtype) for s in ((2000, 3000), (3000, 1500), (1, 1500))]
    for config in module.matmul.declared:
        with jax.sharding.use_abstract_mesh(mesh):

            def run(*a, config=config):
                return module.matmul.function(*a, activation="gelu", **config)

            text = jax.jit(run).trace(*arrays).lower(lowering_platforms=("tpu",)).as_text()
        assert "custom_call @tpu_custom_call" in text, config


class TestRefusals:
    def test_other_arrays(self, kernel):
        with pytest.raises(TypeError, match=r"x must be a jax.Array, not ndarray"):
            kernel.fused_matmul(np.ones((2, 8)), jnp.ones((8, 8)))

    def test_symbolic_sizes(self, kernel):
        one = jax.ShapeDtypeStruct(jax.export.symbolic_shape("n, 8"), jnp.float32)
        w = jax.ShapeDtypeStruct((8, 8), jnp.float32)
        with pytest.raises(ValueError, match="every size must be a number"):
            jax.export.export(jax.jit(kernel.fused_matmul))(one, w)

    def test_gpu(self, kernel):
        device = jax.sharding.AbstractDevice(
            device_kind="NVIDIA H200", num_cores=132, platform="gpu"
        )
        mesh = jax.sharding.AbstractMesh((), (), abstract_device=device)
        one = jax.ShapeDtypeStruct((8, 8), jnp.float32)
        wanted = "x is on a GPU: this kernel runs on a TPU"
        with jax.sharding.use_abstract_mesh(mesh), pytest.raises(ValueError, match=wanted):
            jax.jit(kernel.fused_matmul).trace(one, one)

    def test_dtype(self, kernel):
        with pytest.raises(ValueError, match="x must be float32 or bfloat16"):
            kernel.fused_matmul(jnp.ones((2, 2), jnp.int32), jnp.ones((2, 2), jnp.int32))

    def test_inner_size(self, kernel):
        with pytest.raises(ValueError, match=r"w must be \(3, N\)"):
            kernel.fused_matmul(jnp.ones((2, 3)), jnp.ones((4, 2)))

    def test_bias(self, kernel):
        with pytest.raises(ValueError, match=r"bias must be \(2,\), not \(3,\)"):
            kernel.fused_matmul(jnp.ones((2, 3)), jnp.ones((3, 2)), jnp.ones(3))

    def test_activation(self, kernel):
        with pytest.raises(ValueError, match="activation must be one of none, relu"):
            kernel.fused_matmul(jnp.ones((2, 3)), jnp.ones((3, 2)), activation="tanh")
