"""The JAX package against float64, in Pallas's interpret mode where there is no accelerator."""

from __future__ import annotations

import importlib
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

# Relative errors in norm: float32 sums; bfloat16 rounds probabilities and the result.
LIMIT = {"float32": 2e-6, "bfloat16": 8e-3, "float16": 1e-3}


def inputs(batch, heads, heads_k, queries, keys, dim, dtype="float32", seed=0):
    """q, k, v and a cotangent, (B, S, H, D)."""
    shapes = ((queries, heads), (keys, heads_k), (keys, heads_k), (queries, heads))
    keys_ = jax.random.split(jax.random.key(seed), 4)
    return [
        jax.random.normal(key, (batch, length, count, dim)).astype(dtype)
        for key, (length, count) in zip(keys_, shapes, strict=True)
    ]


def reference(q, k, v, dout, *, scale, shift):
    """out, lse, dq, dk, dv in float64; row i sees keys up to i + shift, all where it is None."""
    q, k, v, dout = (np.asarray(x.astype(jnp.float32), np.float64) for x in (q, k, v, dout))
    group = q.shape[2] // k.shape[2]
    wide_k, wide_v = np.repeat(k, group, 2), np.repeat(v, group, 2)
    s = np.einsum("bqhd,bkhd->bhqk", q, wide_k) * scale
    if shift is not None:
        row, key = np.arange(q.shape[1])[:, None], np.arange(k.shape[1])[None]
        s = np.where(key <= row + shift, s, -np.inf)
    top = np.maximum(s.max(-1, keepdims=True, initial=-np.inf), -1e300)
    p = np.exp(s - top)
    total = p.sum(-1, keepdims=True)
    with np.errstate(divide="ignore"):
        lse = (top + np.log(total))[..., 0]
    p /= np.where(total == 0, 1, total)
    out = np.einsum("bhqk,bkhd->bqhd", p, wide_v)
    dp = np.einsum("bqhd,bkhd->bhqk", dout, wide_v)
    ds = p * (dp - (p * dp).sum(-1, keepdims=True)) * scale
    dq = np.einsum("bhqk,bkhd->bqhd", ds, wide_k)
    dk, dv = np.einsum("bhqk,bqhd->bkhd", ds, q), np.einsum("bhqk,bqhd->bkhd", p, dout)
    shared = (*k.shape[:3], group, k.shape[3])
    return out, lse, dq, *(x.reshape(shared).sum(3) for x in (dk, dv))


def close(got, want, dtype, slack=1.0):
    error = np.linalg.norm(np.asarray(got.astype(jnp.float32), np.float64) - want)
    # With one key the gradient of q is 0, the difference of two numbers that are about 1.
    limit = LIMIT[dtype] * slack * max(np.linalg.norm(want), 0.1)
    assert error <= limit, f"error {error:.1e}, limit {limit:.1e}"


def check(kernel, arrays, *, causal, slack=4.0):
    """Output, log-sum-exp and the three gradients."""
    q, k, v, dout = arrays
    dtype = q.dtype.name

    @jax.jit
    def both(q, k, v, dout):
        def attention(*qkv):
            out, lse, _ = kernel.flash_attn_func(
                *qkv, causal=causal, softmax_scale=0.3, return_attn_probs=True
            )
            return out, lse

        (out, lse), pull = jax.vjp(attention, q, k, v)
        return out, lse, *pull((dout, jnp.zeros_like(lse)))

    out, lse, *gradients = both(q, k, v, dout)
    shift = k.shape[1] - q.shape[1] if causal else None
    exact = reference(q, k, v, dout, scale=0.3, shift=shift)
    assert out.dtype == q.dtype
    close(out, exact[0], dtype)
    np.testing.assert_allclose(lse, exact[1], rtol=1e-5, atol=1e-5)
    for got, want in zip(gradients, exact[2:], strict=True):
        assert got.dtype == q.dtype
        close(got, want, dtype, slack)


def test_causal_grouped_ragged(kernel):
    """Lengths that no block divides, fewer heads of keys, rows that see no key."""
    check(kernel, inputs(1, 2, 1, 150, 140, 24), causal=True)


@pytest.mark.slow
def test_bfloat16(kernel):
    check(kernel, inputs(1, 1, 1, 40, 72, 64, "bfloat16"), causal=False)


@pytest.mark.slow
def test_vmap_of_both_layouts(kernel):
    q, k, v, _ = inputs(3, 2, 1, 10, 12, 16)
    one = jax.vmap(
        lambda q, v: kernel.flash_attn_func(q[None], k[:1], v[None])[0], in_axes=(0, None)
    )(q, v[0])
    heads_first = [jnp.swapaxes(x, 1, 2) for x in (q, k[:1].repeat(3, 0), v[:1].repeat(3, 0))]
    other = kernel.scaled_dot_product_attention(*heads_first, enable_gqa=True)
    np.testing.assert_allclose(one, other.swapaxes(1, 2), atol=2e-6)


@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "sizes",
    [(2, 4, 2, 300, 130, 32), (1, 2, 2, 5, 700, 64), (1, 1, 1, 256, 256, 128), (2, 3, 1, 1, 1, 1)],
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_sizes(kernel, sizes, causal, dtype):
    check(kernel, inputs(*sizes, dtype), causal=causal)


@pytest.mark.slow
def test_corner_of_sdpa(kernel):
    """SDPA's causal mask begins at the top left where the lengths differ."""
    q, k, v, dout = inputs(1, 1, 1, 6, 9, 8)
    heads_first = [jnp.swapaxes(x, 1, 2) for x in (q, k, v)]
    out = kernel.scaled_dot_product_attention(*heads_first, is_causal=True)
    want = reference(q, k, v, dout, scale=8**-0.5, shift=0)[0]
    close(jnp.swapaxes(out, 1, 2), want, "float32")


@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param((0, 2, 1, 4, 5, 8), marks=pytest.mark.slow),
        pytest.param((1, 2, 1, 0, 5, 8), marks=pytest.mark.slow),
        (1, 2, 1, 4, 0, 8),
    ],
)
def test_empty(kernel, sizes):
    check(kernel, inputs(*sizes), causal=False)


class TestRefusals:
    def test_symbolic_sizes(self, kernel):
        shape = jax.export.symbolic_shape("1, n, 1, 8")
        one = jax.ShapeDtypeStruct(shape, jnp.float32)
        with pytest.raises(ValueError, match="every size must be a number"):
            jax.export.export(jax.jit(kernel.flash_attn_func))(one, one, one)

    def test_dtype(self, kernel):
        q, k, v, _ = inputs(1, 1, 1, 4, 4, 8, "int32")
        with pytest.raises(TypeError, match="q is int32, which this kernel does not take"):
            kernel.flash_attn_func(q, k, v)

    def test_dtype_that_a_chip_lacks(self, kernel):
        half = jax.ShapeDtypeStruct((1, 8, 1, 8), jnp.float16)
        with on_chip("TPU v5 lite"), pytest.raises(TypeError, match=r"float16.*on a TPU"):
            jax.jit(kernel.flash_attn_func).trace(half, half, half)

    def test_shapes(self, kernel):
        q, k, v, _ = inputs(1, 3, 2, 4, 4, 8)
        with pytest.raises(ValueError, match="the 3 heads of q must be a multiple of the 2 of k"):
            kernel.flash_attn_func(q, k, v)
        with pytest.raises(ValueError, match="v must have the shape of k"):
            kernel.flash_attn_func(q, k, v[:, :3])

    def test_other_libraries(self, kernel):
        with pytest.raises(TypeError, match=r"q must be a jax\.Array, not ndarray"):
            kernel.flash_attn_func(*(np.ones((1, 4, 1, 8), np.float32),) * 3)

    @pytest.mark.parametrize("name", ["causal", "softmax_scale", "dropout_p"])
    def test_traced_options(self, kernel, name):
        q, k, v, _ = inputs(1, 1, 1, 4, 4, 8)
        with pytest.raises(TypeError, match=f"{name} is traced.*static_argnames"):
            jax.jit(lambda value: kernel.flash_attn_func(q, k, v, **{name: value}))(0.5)

    def test_devices_of_several_kinds(self, kernel):
        device = importlib.import_module(f"{kernel.__name__}.device")
        arrays = {
            name: SimpleNamespace(devices=lambda place=place: iter([place]))
            for name, place in (("q", SimpleNamespace(platform="cuda")), ("k", jax.devices()[0]))
        }
        with pytest.raises(ValueError, match=r"q is on cuda, k is on cpu: move them to one device"):
            device.platform_of(arrays)

    def test_options(self, kernel):
        q, k, v, _ = inputs(1, 1, 1, 4, 4, 8)
        with pytest.raises(NotImplementedError, match=r"window_size=\(3, 0\) is not supported"):
            kernel.flash_attn_func(q, k, v, window_size=(3, 0))


def on_chip(kind: str, platform: str = "tpu", cores: int = 1):
    """Traces and lowers for a chip that is not there."""
    device = jax.sharding.AbstractDevice(device_kind=kind, num_cores=cores, platform=platform)
    mesh = jax.sharding.AbstractMesh((), (), abstract_device=device)
    return jax.sharding.use_abstract_mesh(mesh)
