"""Online softmax over blocks of keys, as the TPU kernel uses it.

Scores stand transposed, a row of keys to a lane of queries: the maximum and the sum of a query are
then taken register by register and stand in one lane, where a copy to all lanes would have to pass
the permute unit. They are kept running (Milakov and Gimelshein, "Online normalizer calculation for
softmax", 2018) in base 2: the score is multiplied by `scale * log2(e)` once and `exp2` does the
rest.
"""

import math

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

LOG2E = math.log2(math.e)
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
    """(rows, D) x (keys, D) -> (keys, rows), float32, in base 2."""
    return dot(k, q, (1, 1), widen) * (scale * LOG2E)


def visible(shape, first_row, first_key, *, keys, shift):
    """Which of a block's scores count: keys that exist and, with `shift`, up to row + shift."""
    key = first_key + lax.broadcasted_iota(jnp.int32, shape, 0)
    if shift is None:
        return key < keys
    row = first_row + lax.broadcasted_iota(jnp.int32, shape, 1)
    return (key < keys) & (key <= row + shift)


def start(maximum, total, sums):
    """Empty rows: (1, rows) twice and (D, rows)."""
    maximum[...] = jnp.full_like(maximum, MASKED)
    total[...] = jnp.zeros_like(total)
    sums[...] = jnp.zeros_like(sums)


def add_block(s, v, state, widen=False):
    """Adds a block of scores (keys, rows) and of values (keys, D) to the rows' running state.

    Values past the last key must be finite, their scores `MASKED`.
    """
    maximum, total, sums = state
    before = maximum[...]
    now = jnp.maximum(before, jnp.max(s, axis=0, keepdims=True))
    p = jnp.exp2(s - now)
    shrink = jnp.exp2(before - now)
    maximum[...] = now
    total[...] = total[...] * shrink + jnp.sum(p, axis=0, keepdims=True)
    sums[...] = sums[...] * shrink + dot(v, p.astype(v.dtype), (0, 0), widen)


def finish(state, out, lse):
    """Writes (rows, D) and (1, rows): 0 and -inf for rows that saw no key."""
    maximum, total, sums = (ref[...] for ref in state)
    seen = maximum > 0.5 * MASKED
    divisor = jnp.where(seen, total, 1.0)
    out[...] = jnp.where(seen, sums / divisor, 0.0).T.astype(out.dtype)
    lse[...] = jnp.where(seen, (maximum + jnp.log2(divisor)) / LOG2E, -jnp.inf)


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
