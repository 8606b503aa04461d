"""Forward attention for any GPU through Pallas's Triton backend.

One program a block of rows. Blocks of keys that every row sees whole come first, without a mask;
those at the end of the sequence or on the diagonal follow.
"""

import functools
import math

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

LOG2E = math.log2(math.e)


def dot(a, b, transposed):
    exact = lax.Precision.HIGHEST if a.dtype == jnp.float32 else None
    axes = (((1,), (1 if transposed else 0,)), ((), ()))
    return lax.dot_general(a, b, axes, preferred_element_type=jnp.float32, precision=exact)


def load(ref, inside):
    """`ref` where `inside` is true, 0 elsewhere; None: all of it."""
    return ref[...] if inside is None else plt.load(ref, mask=inside, other=0.0)


def both(rows, columns):
    """Rows and columns that exist, (rows, columns); None stands for all of them."""
    if rows is None:
        return None if columns is None else columns[None, :]
    return rows[:, None] if columns is None else rows[:, None] & columns[None, :]


def _bounds(first_row, *, block_q, block_k, keys, shift):
    """(blocks of keys that all rows see whole, blocks that some row sees)."""
    whole, every = keys // block_k, pl.cdiv(keys, block_k)
    if shift is None:
        return whole, every
    sees = first_row + shift + 1  # keys that the first row sees
    full = jnp.clip(lax.div(jnp.maximum(sees, 0), block_k), 0, whole)
    last = jnp.maximum(sees + block_q - 1, 0)
    return full, jnp.clip(lax.div(last + block_k - 1, block_k), 0, every)


def _body(q_ref, k_ref, v_ref, out_ref, lse_ref, *, block_k, queries, keys, dim, shift, scale):
    block_q, width = q_ref.shape
    first_row = pl.program_id(0) * block_q
    rows = first_row + jnp.arange(block_q)
    columns = None if width == dim else jnp.arange(width) < dim
    ragged = queries % block_q != 0
    inside = both(rows < queries if ragged else None, columns)
    q = load(q_ref, inside)

    def step(block, state, masked):
        maximum, total, sums = state
        first_key = block * block_k
        at = pl.ds(first_key, block_k)
        key = first_key + jnp.arange(block_k)
        exists = key < keys if masked and keys % block_k else None
        k = load(k_ref.at[at, :], both(exists, columns))
        s = dot(q, k, transposed=True) * (scale * LOG2E)
        if masked:
            seen = key[None, :] < keys
            if shift is not None:
                seen &= key[None, :] <= rows[:, None] + shift
            s = jnp.where(seen, s, -jnp.inf)
        now = jnp.maximum(maximum, jnp.max(s, axis=1))
        # A row that has seen no key yet: -inf - -inf is not a number.
        against = jnp.where(now == -jnp.inf, 0.0, now) if masked else now
        p = jnp.exp2(s - against[:, None])
        shrink = jnp.exp2(maximum - against)
        v = load(v_ref.at[at, :], both(exists, columns))
        sums = sums * shrink[:, None] + dot(p.astype(v.dtype), v, transposed=False)
        return now, total * shrink + jnp.sum(p, axis=1), sums

    state = (
        jnp.full((block_q,), -jnp.inf, jnp.float32),
        jnp.zeros((block_q,), jnp.float32),
        jnp.zeros((block_q, width), jnp.float32),
    )
    full, every = _bounds(first_row, block_q=block_q, block_k=block_k, keys=keys, shift=shift)
    state = lax.fori_loop(0, full, functools.partial(step, masked=False), state)
    if shift is not None or keys % block_k:
        state = lax.fori_loop(full, every, functools.partial(step, masked=True), state)
    maximum, total, sums = state
    divisor = jnp.where(total == 0.0, 1.0, total)
    plt.store(out_ref, (sums / divisor[:, None]).astype(out_ref.dtype), mask=inside)
    lse = (maximum + jnp.log2(divisor)) / LOG2E
    plt.store(lse_ref, lse, mask=rows < queries if ragged else None)


def forward(
    q, k, v, *, shift, scale, heads_axis, block_q, block_k, num_warps, num_stages, interpret=False
):
    """As `gpu_forward.attention_gpu`; row i sees keys up to i + shift, all where it is None."""
    length_axis = 3 - heads_axis
    queries, keys = q.shape[length_axis], k.shape[length_axis]
    heads, dim = q.shape[heads_axis], q.shape[3]
    group, width = heads // k.shape[heads_axis], max(16, pl.next_power_of_2(dim))

    def place(batch, head, block):
        return (batch, head, block, 0) if heads_axis == 1 else (batch, block, head, 0)

    def blocks(length, index):
        shape = (None, None, length, width) if heads_axis == 1 else (None, length, None, width)
        return pl.BlockSpec(shape, index)

    rows = blocks(block_q, lambda i, h, b: place(b, h, i))
    head_of_keys = blocks(keys, lambda i, h, b: place(b, lax.div(h, group), 0))
    return pl.pallas_call(
        functools.partial(
            _body, block_k=block_k, queries=queries, keys=keys, dim=dim,
            shift=shift, scale=scale,
        ),
        grid=(pl.cdiv(queries, block_q), heads, q.shape[0]),
        in_specs=[rows, head_of_keys, head_of_keys],
        out_specs=[rows, pl.BlockSpec((None, None, block_q), lambda i, h, b: (b, h, i))],
        out_shape=[
            jax.ShapeDtypeStruct(q.shape, q.dtype),
            jax.ShapeDtypeStruct((q.shape[0], heads, queries), jnp.float32),
        ],
        compiler_params=plt.CompilerParams(num_warps=num_warps, num_stages=num_stages),
        interpret=interpret,
        name="attention_forward",
    )(q, k, v)  # fmt: skip
