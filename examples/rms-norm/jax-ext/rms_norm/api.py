"""The public function: checks, gradients, and which kernels run where."""

import functools
import math

import jax
import jax.numpy as jnp
from jax.core import Tracer

from . import gpu, tpu
from .device import platform_of

_DTYPES = {
    "cpu": ("float32", "float16", "bfloat16"),
    "gpu": ("float32", "float16", "bfloat16"),
    "tpu": ("float32", "bfloat16"),
}


def rms_norm(x, weight, eps=1e-6):
    """Normalise `x` by the root mean square of its last dimension, times `weight`.

    Args:
        x: (..., N), float32, bfloat16 or, but on a TPU, float16; static sizes.
        weight: (N,), any of these dtypes.
        eps: added to the mean square; a number of at least 0, not traced.

    Returns:
        (..., N) in the dtype of `x`. Differentiable in `x` and `weight`, usable under `jax.jit` and
        `jax.vmap`. On the CPU the kernel runs in Pallas's interpret mode.

    Raises:
        TypeError: `x` or `weight` is no JAX array, or `eps` is traced.
        ValueError: a shape, dtype or device does not fit; the text names the argument.
    """
    for name, array in (("x", x), ("weight", weight)):
        if not isinstance(array, jax.Array):
            raise TypeError(f"{name} must be a jax.Array, not {type(array).__name__}")
        if not all(isinstance(size, int) for size in array.shape):
            raise ValueError(
                f"{name} has the shape {array.shape}: blocks are chosen while tracing, so every "
                "size must be a number; export one function for each shape"
            )
    if isinstance(eps, Tracer):
        raise TypeError(
            "eps is traced, and the kernel is compiled for its value: pass a plain one, and name "
            "eps in static_argnames of a jax.jit around the call"
        )
    if not 0.0 <= float(eps) < math.inf:
        raise ValueError(f"eps must be finite and at least 0, not {eps}")
    platform = platform_of({"x": x, "weight": weight})
    dtypes = _DTYPES[platform]
    if x.ndim == 0 or x.dtype.name not in dtypes:
        raise ValueError(
            f"x must have a dimension and be {' or '.join(dtypes)} on a {platform.upper()}, not "
            f"{x.dtype} {x.shape}"
        )
    if weight.shape != (x.shape[-1],) or weight.dtype.name not in dtypes:
        got = f"{weight.shape} {weight.dtype}"
        raise ValueError(f"weight must be ({x.shape[-1]},) of a floating dtype, not {got}")
    if x.size == 0:
        return jnp.zeros_like(x)
    rows = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    return _compiled(rows, weight, float(eps), platform).reshape(x.shape)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _normalised(rows, weight, eps, platform):
    if platform == "gpu":
        return gpu.rms_norm_forward(rows, weight, eps=eps)
    return tpu.rms_norm_forward(rows, weight, eps=eps, interpret=platform == "cpu")


def _forward(rows, weight, eps, platform):
    return _normalised(rows, weight, eps, platform), (rows, weight)


def _backward(eps, platform, saved, dy):
    """The kernel gives sums of the weight's gradient in float32, one a block of rows."""
    rows, weight = saved
    if platform == "gpu":
        dx, partial = gpu.rms_norm_backward(rows, weight, dy, eps=eps)
    else:
        interpret = platform == "cpu"
        dx, partial = tpu.rms_norm_backward(rows, weight, dy, eps=eps, interpret=interpret)
    return dx, partial.sum((0, 1)).astype(weight.dtype)


_normalised.defvjp(_forward, _backward)
# Calls outside of a caller's jit compile once for their shapes, and choose blocks once.
_compiled = jax.jit(_normalised, static_argnums=(2, 3))
