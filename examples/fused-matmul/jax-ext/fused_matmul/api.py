"""The public function: checks, block sizes, gradients."""

import functools
import math

import jax
import jax.numpy as jnp

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
        and `jax.vmap`. On the CPU the kernel runs in Pallas's interpret mode.

    Raises:
        ValueError: a shape, dtype or activation does not fit; the text names the argument.
    """
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
    rows = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    return _fused(rows, w, bias, activation).reshape(*x.shape[:-1], w.shape[1])


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def _fused(x, w, bias, activation):
    return _product(x, w, bias, activation)


def _product(x, w, bias, activation, block_m=256, block_n=256, block_k=512):
    if 0 in (*x.shape, w.shape[1]):  # nothing to sum or nothing to return: no grid to run
        y = jnp.broadcast_to(bias.astype(jnp.float32), (x.shape[0], w.shape[1]))
        return ACTIVATIONS[activation](y).astype(x.dtype)
    interpret = jax.default_backend() == "cpu"
    return matmul(
        x,
        w,
        bias[None, :],
        activation=activation,
        block_m=block_m,
        block_n=block_n,
        block_k=block_k,
        interpret=interpret,
    )


def _forward(x, w, bias, activation):
    return _product(x, w, bias, activation), (x, w, bias)


def _backward(activation, saved, dy):
    """The pre-activation is computed again rather than kept: it is as large as the result."""
    x, w, bias = saved
    before = _product(x, w, bias, "none").astype(jnp.float32)
    _, pull = jax.vjp(ACTIVATIONS[activation], before)
    (dz,) = pull(dy.astype(jnp.float32))
    narrow = dz.astype(x.dtype)
    zero_k, zero_n = jnp.zeros(x.shape[1], x.dtype), jnp.zeros(w.shape[1], x.dtype)
    dx = _product(narrow, w.T, zero_k, "none")
    dw = _product(x.T, narrow, zero_n, "none")
    return dx, dw, dz.sum(0).astype(bias.dtype)


_fused.defvjp(_forward, _backward)
