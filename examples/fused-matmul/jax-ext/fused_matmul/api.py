"""The public function: checks, block sizes, gradients."""

import functools
import math

import jax
import jax.numpy as jnp

from .device import platform_of
from .kernel import ACTIVATIONS, matmul

_DTYPES = ("float32", "bfloat16")


def fused_matmul(x, w, bias=None, activation="none"):
    """activation(x @ w + bias), accumulated in float32.

    Args:
        x: (..., K), float32 or bfloat16.
        w: (K, N), the dtype of `x`.
        bias: (N,) or None.
        activation: "none", "relu", "silu" or "gelu" (its tanh form).

    Returns:
        (..., N) in the dtype of `x`. Differentiable in `x`, `w` and `bias`; usable under `jax.jit`
        and `jax.vmap`. Runs on a TPU; on the CPU in Pallas's interpret mode.

    Raises:
        TypeError: `x`, `w` or `bias` is no JAX array.
        ValueError: a shape, dtype, device or activation does not fit; the text names the argument.
    """
    for name, array in (("x", x), ("w", w), ("bias", w if bias is None else bias)):
        if not isinstance(array, jax.Array):
            raise TypeError(f"{name} must be a jax.Array, not {type(array).__name__}")
        if not all(isinstance(size, int) for size in array.shape):
            raise ValueError(
                f"{name} has the shape {array.shape}: blocks are chosen while tracing, so every "
                "size must be a number; export one function for each shape"
            )
    if x.dtype.name not in _DTYPES or x.ndim < 1:
        raise ValueError(f"x must be float32 or bfloat16 with a dimension, not {x.dtype} {x.shape}")
    if w.ndim != 2 or w.shape[0] != x.shape[-1] or w.dtype != x.dtype:
        raise ValueError(f"w must be ({x.shape[-1]}, N) of {x.dtype}, not {w.shape} of {w.dtype}")
    if bias is None:
        bias = jnp.zeros(w.shape[1], x.dtype)
    if bias.shape != (w.shape[1],):
        raise ValueError(f"bias must be ({w.shape[1]},), not {bias.shape}")
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation must be one of {', '.join(ACTIVATIONS)}, not {activation!r}")
    platform = platform_of({"x": x, "w": w, "bias": bias})
    if platform == "gpu":
        raise ValueError("x is on a GPU: this kernel runs on a TPU, and interpreted on the CPU")
    rows = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    return _compiled(rows, w, bias, activation, platform == "cpu").reshape(
        *x.shape[:-1], w.shape[1]
    )


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def _fused(x, w, bias, activation, interpret):
    return _product(x, w, bias, activation, interpret)


def _product(x, w, bias, activation, interpret):
    if 0 in (*x.shape, w.shape[1]):  # nothing to sum or nothing to return: no grid to run
        y = jnp.broadcast_to(bias.astype(jnp.float32), (x.shape[0], w.shape[1]))
        return ACTIVATIONS[activation](y).astype(x.dtype)
    return matmul(x, w, bias[None, :], activation=activation, interpret=interpret)


def _forward(x, w, bias, activation, interpret):
    return _product(x, w, bias, activation, interpret), (x, w, bias)


def _backward(activation, interpret, saved, dy):
    """The pre-activation is computed again rather than kept: it is as large as the result."""
    x, w, bias = saved
    before = _product(x, w, bias, "none", interpret).astype(jnp.float32)
    _, pull = jax.vjp(ACTIVATIONS[activation], before)
    (dz,) = pull(dy.astype(jnp.float32))
    narrow = dz.astype(x.dtype)
    zero_k, zero_n = jnp.zeros(x.shape[1], x.dtype), jnp.zeros(w.shape[1], x.dtype)
    dx = _product(narrow, w.T, zero_k, "none", interpret)
    dw = _product(x.T, narrow, zero_n, "none", interpret)
    return dx, dw, dz.sum(0).astype(bias.dtype)


_fused.defvjp(_forward, _backward)
# Calls outside of a caller's jit compile once for their shapes, and choose blocks once.
_compiled = jax.jit(_fused, static_argnums=(3, 4))
