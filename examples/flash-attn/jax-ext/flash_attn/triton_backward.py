"""Gradients of attention for GPUs through Pallas's Triton backend, arranged as for TPU.

A program a block of rows gathers dq over the keys; a program a block of keys gathers dk and dv over
the rows of all heads of its group.
"""

import functools

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

from kernelhub import tunable

from .triton_forward import LOG2E, both, dot, load


def _grown(probabilities, gradients, lse, delta, seen, scale):
    """p and ds, float32, from scores in base 2 and the gradients of p."""
    p = jnp.where(seen, jnp.exp2(probabilities - lse * LOG2E), 0.0)
    return p, p * (gradients - delta) * scale


def _seen(row, key, queries, keys, shift):
    seen = (row < queries) & (key < keys)
    return seen if shift is None else seen & (key <= row + shift)


def _dq_body(
    q_ref, k_ref, v_ref, dout_ref, lse_ref, delta_ref, dq_ref,
    *, block_k, queries, keys, dim, shift, scale,
):  # fmt: skip
    block_q, width = q_ref.shape
    rows = pl.program_id(0) * block_q + jnp.arange(block_q)
    columns = None if width == dim else jnp.arange(width) < dim
    exist = rows < queries if queries % block_q else None
    inside = both(exist, columns)
    q, dout = load(q_ref, inside), load(dout_ref, inside)
    lse, delta = load(lse_ref, exist)[:, None], load(delta_ref, exist)[:, None]

    def step(block, dq):
        at, key = pl.ds(block * block_k, block_k), block * block_k + jnp.arange(block_k)
        there = both(key < keys if keys % block_k else None, columns)
        k, v = load(k_ref.at[at, :], there), load(v_ref.at[at, :], there)
        scores = dot(q, k, transposed=True) * (scale * LOG2E)
        gradients = dot(dout, v, transposed=True)
        seen = _seen(rows[:, None], key[None, :], queries, keys, shift)
        _, ds = _grown(scores, gradients, lse, delta, seen, scale)
        return dq + dot(ds.astype(k.dtype), k, transposed=False)

    every = pl.cdiv(keys, block_k)
    if shift is not None:
        last = jnp.maximum((pl.program_id(0) + 1) * block_q + shift, 0)
        every = jnp.minimum(lax.div(last + block_k - 1, block_k), every)
    dq = lax.fori_loop(0, every, step, jnp.zeros((block_q, width), jnp.float32))
    plt.store(dq_ref, dq.astype(dq_ref.dtype), mask=inside)


def _dkv_body(
    q_ref, k_ref, v_ref, dout_ref, lse_ref, delta_ref, dk_ref, dv_ref,
    *, block_q, group, heads_axis, queries, keys, dim, shift, scale,
):  # fmt: skip
    """References to rows hold all heads of the group."""
    block_k, width = k_ref.shape
    key = pl.program_id(0) * block_k + jnp.arange(block_k)
    columns = None if width == dim else jnp.arange(width) < dim
    inside = both(key < keys if keys % block_k else None, columns)
    k, v = load(k_ref, inside), load(v_ref, inside)
    first = 0
    if shift is not None:  # rows before this one see none of the keys
        first = lax.div(jnp.maximum(pl.program_id(0) * block_k - shift, 0), block_q)

    def head(number, sums):
        def step(block, sums):
            dk, dv = sums
            at, row = pl.ds(block * block_q, block_q), block * block_q + jnp.arange(block_q)
            exist = row < queries if queries % block_q else None
            there = both(exist, columns)
            place = (number, at) if heads_axis == 1 else (at, number)
            q, dout = (load(ref.at[(*place, slice(None))], there) for ref in (q_ref, dout_ref))
            lse, delta = (load(ref.at[number, at], exist)[None, :] for ref in (lse_ref, delta_ref))
            scores = dot(k, q, transposed=True) * (scale * LOG2E)
            gradients = dot(v, dout, transposed=True)
            seen = _seen(row[None, :], key[:, None], queries, keys, shift)
            p, ds = _grown(scores, gradients, lse, delta, seen, scale)
            dk += dot(ds.astype(q.dtype), q, transposed=False)
            return dk, dv + dot(p.astype(dout.dtype), dout, transposed=False)

        return lax.fori_loop(first, pl.cdiv(queries, block_q), step, sums)

    nothing = jnp.zeros((block_k, width), jnp.float32)
    dk, dv = lax.fori_loop(0, group, head, (nothing, nothing))
    plt.store(dk_ref, dk.astype(dk_ref.dtype), mask=inside)
    plt.store(dv_ref, dv.astype(dv_ref.dtype), mask=inside)


def _default(arguments):
    """Blocks whose tiles stay in registers and in 100 KB of shared memory."""
    row = arguments["q"].shape[3] * arguments["q"].dtype.itemsize
    block = 64 if row <= 256 else 32
    return {
        "block_q": block,
        "block_k": block,
        "num_warps": 4,
        "num_stages": 2 if row <= 256 else 1,
    }


@tunable(
    space={
        "block_q": (32, 64, 128),
        "block_k": (32, 64, 128),
        "num_warps": (4, 8),
        "num_stages": (1, 2, 3),
    },
    default=_default,
    key=["causal", "heads_axis"],
)
def backward_gpu(
    q, k, v, dout, lse, delta, *, causal, scale, heads_axis, shift=None, interpret=False,
    block_q, block_k, num_warps, num_stages,
):  # fmt: skip
    """Gradients of `gpu_forward.attention_gpu`.

    Args:
        q, k, v, dout: in its layout.
        lse, delta: (B, Hq, Sq) float32; delta is the row sum of dout * out, less the gradient of
            lse.
        The others: as there.

    Returns:
        dq, dk, dv, shaped and typed as q, k, v.
    """
    queries, keys = q.shape[3 - heads_axis], k.shape[3 - heads_axis]
    heads, kv_heads, dim = q.shape[heads_axis], k.shape[heads_axis], q.shape[3]
    group, width = heads // kv_heads, max(16, pl.next_power_of_2(dim))
    if causal and shift is None:
        shift = keys - queries
    numbers = {
        "queries": queries, "keys": keys, "dim": dim, "shift": shift if causal else None,
        "scale": scale,
    }  # fmt: skip
    # A row that sees no key has the log-sum-exp -inf; its probabilities are masked anyhow.
    lse = jnp.where(lse == -jnp.inf, 0.0, lse)
    arrays = (q, k, v, dout, lse, delta)

    def spec(heads_, length, index):
        """Blocks of `length` rows of `heads_` heads (None: one); `index` gives (b, head, block)."""

        def place(*program):
            b, head, block = index(*program)
            return (b, head, block, 0) if heads_axis == 1 else (b, block, head, 0)

        shape = (heads_, length) if heads_axis == 1 else (length, heads_)
        return pl.BlockSpec((None, *shape, width), place)

    def call(body, grid, in_specs, out_specs, results):
        return pl.pallas_call(
            functools.partial(body, **numbers),
            grid=grid,
            in_specs=in_specs,
            out_specs=out_specs,
            out_shape=[jax.ShapeDtypeStruct(x.shape, x.dtype) for x in results],
            compiler_params=plt.CompilerParams(num_warps=num_warps, num_stages=num_stages),
            interpret=interpret,
            name="attention_backward",
        )(*arrays)

    rows = spec(None, block_q, lambda i, h, b: (b, h, i))
    all_keys = spec(None, keys, lambda i, h, b: (b, lax.div(h, group), 0))
    row = pl.BlockSpec((None, None, block_q), lambda i, h, b: (b, h, i))
    (dq,) = call(
        functools.partial(_dq_body, block_k=block_k),
        (pl.cdiv(queries, block_q), heads, q.shape[0]),
        [rows, all_keys, all_keys, rows, row, row],
        [rows],
        [q],
    )
    key_rows = spec(None, block_k, lambda j, h, b: (b, h, j))
    all_rows = spec(group, queries, lambda j, h, b: (b, h, 0))
    every = pl.BlockSpec((None, group, queries), lambda j, h, b: (b, h, 0))
    dk, dv = call(
        functools.partial(_dkv_body, block_q=block_q, group=group, heads_axis=heads_axis),
        (pl.cdiv(keys, block_k), kv_heads, q.shape[0]),
        [all_rows, key_rows, key_rows, all_rows, every, every],
        [key_rows, key_rows],
        [k, v],
    )
    return dq, dk, dv
