"""Online softmax over blocks of keys, as the TPU kernels use it.

The running maximum and sum of each row (Milakov and Gimelshein, "Online normalizer calculation for
softmax", 2018) are kept in base 2: the score is multiplied by `scale * log2(e)` once and `exp2`
does the rest. Both are (rows, 128), the same in all lanes, as vector registers are 128 lanes wide.
"""

import math

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

LOG2E = math.log2(math.e)
LANES = 128
# Finite, so that a row of masked scores does not become inf - inf; no score comes near it.
MASKED = -0.7 * float(jnp.finfo(jnp.float32).max)


def dot(a, b, axes, widen):
    """The product of two matrices over one axis of each, summed in float32.

    float32 operands are multiplied as such; a TPU would round them to bfloat16 by default. XLA's
    CPU backend lacks a bfloat16 product with a float32 result in some layouts: `widen` the
    operands there, which changes no product.
    """
    if widen:
        a, b = a.astype(jnp.float32), b.astype(jnp.float32)
    exact = lax.Precision.HIGHEST if a.dtype == jnp.float32 else None
    contract = (((axes[0],), (axes[1],)), ((), ()))
    return lax.dot_general(a, b, contract, preferred_element_type=jnp.float32, precision=exact)


def scores(q, k, scale, widen):
    """(rows, D) x (keys, D) -> (rows, keys), float32, in base 2."""
    return dot(q, k, (1, 1), widen) * (scale * LOG2E)


def visible(shape, first_row, first_key, *, keys, shift):
    """Which of a block's scores count: keys that exist and, with `shift`, up to row + shift."""
    key = first_key + lax.broadcasted_iota(jnp.int32, shape, 1)
    if shift is None:
        return key < keys
    row = first_row + lax.broadcasted_iota(jnp.int32, shape, 0)
    return (key < keys) & (key <= row + shift)


def start(maximum, total, sums):
    """Empty rows."""
    maximum[...] = jnp.full_like(maximum, MASKED)
    total[...] = jnp.zeros_like(total)
    sums[...] = jnp.zeros_like(sums)


def add_block(q, k, v, state, scale, *, mask=None, widen=False):
    """Adds one block of keys and values to the running (maximum, total, sums) of the rows of q.

    `mask` is None or a function of the scores' shape. Rows of `v` past the last key must be finite.
    """
    maximum, total, sums = state
    s = scores(q, k, scale, widen)
    if mask is not None:
        s = jnp.where(mask(s.shape), s, MASKED)
    before = maximum[...]
    now = jnp.maximum(before, jnp.max(s, axis=1, keepdims=True))
    p = jnp.exp2(s - now[:, :1])
    shrink = jnp.exp2(before - now)
    maximum[...] = now
    total[...] = total[...] * shrink + jnp.sum(p, axis=1, keepdims=True)
    product = dot(p.astype(v.dtype), v, (1, 0), widen)
    sums[...] = sums[...] * shrink[:, :1] + product


def finish(state, out, lse):
    """Writes (rows, D) and (1, rows): 0 and -inf for rows that saw no key."""
    maximum, total, sums = state
    seen = maximum[...] > 0.5 * MASKED
    divisor = jnp.where(seen, total[...], 1.0)
    out[...] = jnp.where(seen[:, :1], sums[...] / divisor[:, :1], 0.0).astype(out.dtype)
    rows = jnp.where(seen, (maximum[...] + jnp.log2(divisor)) / LOG2E, -jnp.inf)
    lse[...] = rows.T[:1]


def zero_missing(v, first_key, keys):
    """`v` with zeros in rows past the last key, whose contents are undefined."""
    key = first_key + lax.broadcasted_iota(jnp.int32, v.shape, 0)
    return jnp.where(key < keys, v, jnp.zeros_like(v))


def blocks_seen(row_block, *, block_q, block_k, keys, shift) -> jax.Array | int:
    """Blocks of keys that the rows of a block see, at least one so that there is one to run."""
    every = pl.cdiv(keys, block_k)
    if shift is None:
        return every
    last = (row_block + 1) * block_q + shift  # one past the last key of the last row
    return jnp.clip(lax.div(last + block_k - 1, block_k), 1, every)
