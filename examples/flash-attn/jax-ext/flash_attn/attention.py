"""Attention of either layout on any platform, with its gradient and under `jax.vmap`."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from . import backward
from .gpu_forward import attention_gpu
from .tpu_forward import attention_tpu


class Options(NamedTuple):
    """What is known while tracing."""

    platform: str
    heads_axis: int
    causal: bool
    shift: int | None  # with causal: row i sees keys up to i + shift
    scale: float


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def _attend(q, k, v, options):
    """(out, laid out as q; log-sum-exp of each row, (B, Hq, Sq) float32)."""
    return _run(q, k, v, options)


def _forward(q, k, v, options):
    out, lse = _run(q, k, v, options)
    return (out, lse), (q, k, v, out, lse)


def _backward(options, saved, cotangents):
    q, k, v, out, lse = saved
    dout, dlse = cotangents
    if 0 in (q.size, k.size):
        return jnp.zeros_like(q), jnp.zeros_like(k), jnp.zeros_like(v)
    # The gradient of a score is p * (dp - delta): that of lse is p, so it joins delta.
    delta = jnp.sum(dout.astype(jnp.float32) * out.astype(jnp.float32), axis=-1)
    delta = (delta if options.heads_axis == 1 else delta.swapaxes(1, 2)) - dlse
    return _folding(functools.partial(backward.gradients, options=options))(
        q, k, v, dout, lse, delta
    )


_attend.defvjp(_forward, _backward)
# Calls outside of a caller's jit compile once for their shapes, and choose blocks once.
attend = jax.jit(_attend, static_argnums=3)


def _run(q, k, v, options):
    if 0 in (q.size, k.size):
        heads_first = q.shape if options.heads_axis == 1 else q.swapaxes(1, 2).shape
        return jnp.zeros_like(q), jnp.full(heads_first[:3], -jnp.inf, jnp.float32)
    return _folding(functools.partial(_kernel, options=options))(q, k, v)


def _kernel(q, k, v, *, options):
    shared = {"causal": options.causal, "shift": options.shift, "scale": options.scale}
    if options.platform == "gpu":
        return attention_gpu(q, k, v, heads_axis=options.heads_axis, **shared)
    if options.heads_axis == 2:
        q, k, v = (x.swapaxes(1, 2) for x in (q, k, v))
    out, lse = attention_tpu(q, k, v, interpret=options.platform == "cpu", **shared)
    return (out.swapaxes(1, 2) if options.heads_axis == 2 else out), lse


def _folding(function):
    """`function` of arrays with a leading batch; what `jax.vmap` adds is folded into it."""
    run = jax.custom_batching.custom_vmap(function)

    @run.def_vmap
    def _(size, batched, *arrays):
        full = [
            x if is_batched else jnp.broadcast_to(x, (size, *x.shape))
            for x, is_batched in zip(arrays, batched, strict=True)
        ]
        results = _folding(function)(*(x.reshape(-1, *x.shape[2:]) for x in full))
        unfolded = tuple(x.reshape(size, -1, *x.shape[1:]) for x in results)
        return unfolded, (True,) * len(unfolded)

    return run
