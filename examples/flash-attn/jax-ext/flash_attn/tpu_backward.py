"""Gradients of attention for TPU, as FlashAttention-2 arranges them (Dao, 2023).

One kernel walks over the keys for each block of rows and gathers dq; the other walks over the rows
of all heads of a group for each block of keys and gathers dk and dv. Scores stand transposed, a row
of keys to a lane of queries, so that the log-sum-exp of a row is one number a lane.
"""

import contextlib
import functools

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import AbstractMesh, use_abstract_mesh

from kernelhub import tunable

from . import vmem
from .softmax import LOG2E, dot, zero_missing
from .tpu_forward import INTERPRETED, sizes


def _tile(refs, first_row, first_key, *, queries, keys, shift, scale, widen):
    """q, k, dout and the transposed probabilities and gradients of scores, (keys, rows)."""
    q, k, v, dout, lse, delta = (ref[...] for ref in refs)
    if queries % q.shape[0]:
        q, dout = (zero_missing(x, first_row, queries) for x in (q, dout))
    if keys % k.shape[0]:
        k, v = (zero_missing(x, first_key, keys) for x in (k, v))
    p = jnp.exp2(dot(k, q, (1, 1), widen) * (scale * LOG2E) - lse * LOG2E)
    ds = p * (dot(v, dout, (1, 1), widen) - delta) * scale
    key = first_key + lax.broadcasted_iota(jnp.int32, p.shape, 0)
    row = first_row + lax.broadcasted_iota(jnp.int32, p.shape, 1)
    seen = (key < keys) & (row < queries)
    if shift is not None:
        seen &= key <= row + shift
    p, ds = (jnp.where(seen, x, 0.0).astype(q.dtype) for x in (p, ds))
    return q, k, dout, p, ds


def _seen(first_row, first_key, rows, shift):
    """Whether any row of a block sees any key of another."""
    return True if shift is None else first_key <= first_row + rows - 1 + shift


def _dq_body(*refs, **numbers):
    *operands, dq, sums = refs
    block_q, block_k = operands[0].shape[0], operands[1].shape[0]
    first_row, first_key = pl.program_id(2) * block_q, pl.program_id(3) * block_k

    @pl.when(pl.program_id(3) == 0)
    def _():
        sums[...] = jnp.zeros_like(sums)

    @pl.when(_seen(first_row, first_key, block_q, numbers["shift"]))
    def _():
        _, k, _, _, ds = _tile(operands, first_row, first_key, **numbers)
        sums[...] += dot(ds, k, (0, 0), numbers["widen"])

    @pl.when(pl.program_id(3) == pl.num_programs(3) - 1)
    def _():
        dq[...] = sums[...].astype(dq.dtype)


def _dkv_body(*refs, row_blocks, **numbers):
    *operands, dk, dv, dk_sums, dv_sums = refs
    block_q, block_k = operands[0].shape[0], operands[1].shape[0]
    step = pl.program_id(3)
    first_row, first_key = lax.rem(step, row_blocks) * block_q, pl.program_id(2) * block_k

    @pl.when(step == 0)
    def _():
        dk_sums[...] = jnp.zeros_like(dk_sums)
        dv_sums[...] = jnp.zeros_like(dv_sums)

    @pl.when(_seen(first_row, first_key, block_q, numbers["shift"]))
    def _():
        q, _, dout, p, ds = _tile(operands, first_row, first_key, **numbers)
        dk_sums[...] += dot(ds, q, (1, 0), numbers["widen"])
        dv_sums[...] += dot(p, dout, (1, 0), numbers["widen"])

    @pl.when(step == pl.num_programs(3) - 1)
    def _():
        dk[...] = dk_sums[...].astype(dk.dtype)
        dv[...] = dv_sums[...].astype(dv.dtype)


def _call(body, arrays, place, grid, results, *, block_q, block_k, interpret):
    """`place(b, h, i, j)` is (head of q, block of rows, head of k, block of keys) of a program."""
    dim = arrays[0].shape[3]

    def at(length, which):
        def index(b, h, i, j):
            q_head, row_block, k_head, key_block = place(b, h, i, j)
            return (b, q_head, row_block, 0) if which == "q" else (b, k_head, key_block, 0)

        return pl.BlockSpec((None, None, length, dim), index)

    def statistics(b, h, i, j):
        q_head, row_block, _, _ = place(b, h, i, j)
        return b, q_head, 0, row_block

    rows, keys = at(block_q, "q"), at(block_k, "k")
    row = pl.BlockSpec((None, None, 1, block_q), statistics)
    of_rows = results == 1
    shape = arrays[0] if of_rows else arrays[1]
    sums = pltpu.VMEM((block_q if of_rows else block_k, dim), jnp.float32)
    return pl.pallas_call(
        body,
        grid=grid,
        in_specs=[rows, keys, keys, rows, row, row],
        out_specs=[rows if of_rows else keys] * results,
        out_shape=[jax.ShapeDtypeStruct(shape.shape, shape.dtype)] * results,
        scratch_shapes=[sums] * results,
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "parallel", "parallel", "arbitrary"),
            vmem_limit_bytes=None if interpret else vmem.available(),
        ),
        interpret=interpret,
        name="attention_backward",
    )(*arrays)


@tunable(
    space={"block_q": (128, 256, 512, 1024), "block_k": (128, 256, 512, 1024)},
    # Three blocks of scores in float32, of v4's 16 MiB.
    conditions=[lambda config: config["block_q"] * config["block_k"] <= 512 * 1024],
    default={"block_q": 256, "block_k": 512},
    key=["causal"],
)
def backward_tpu(
    q, k, v, dout, lse, delta, *, causal, scale, shift=None, interpret=False, block_q, block_k
):
    """Gradients of `tpu_forward.attention_tpu`.

    Args:
        q, dout: (B, Hq, Sq, D); k, v: (B, Hkv, Skv, D).
        lse, delta: (B, Hq, Sq) float32; delta is the row sum of dout * out, less the gradient of
            lse.
        The others: as there.

    Returns:
        dq, dk, dv, shaped and typed as q, k, v.
    """
    if causal and shift is None:
        shift = k.shape[2] - q.shape[2]
    batch, heads, queries = q.shape[:3]
    kv_heads, keys = k.shape[1:3]
    group = heads // kv_heads
    block_q, block_k = sizes(q, k, block_q, block_k)
    row_blocks, key_blocks = pl.cdiv(queries, block_q), pl.cdiv(keys, block_k)
    numbers = {
        "queries": queries, "keys": keys, "shift": shift if causal else None, "scale": scale,
        "widen": bool(interpret),
    }  # fmt: skip
    # A row that sees no key has the log-sum-exp -inf; its probabilities have to be 0.
    lse = jnp.where(lse == -jnp.inf, 0.5 * jnp.finfo(jnp.float32).max, lse)
    arrays = (q, k, v, dout, lse[:, :, None], delta[:, :, None])
    call = functools.partial(
        _call, arrays=arrays, block_q=block_q, block_k=block_k, interpret=interpret
    )
    chip = contextlib.nullcontext()
    if interpret:
        chip = use_abstract_mesh(AbstractMesh((), (), abstract_device=INTERPRETED))
    with chip:
        (dq,) = call(
            functools.partial(_dq_body, **numbers),
            place=lambda b, h, i, j: (h, i, lax.div(h, group), j),
            grid=(batch, heads, row_blocks, key_blocks),
            results=1,
        )
        dk, dv = call(
            functools.partial(_dkv_body, row_blocks=row_blocks, **numbers),
            place=lambda b, h, j, step: (
                h * group + lax.div(step, row_blocks), lax.rem(step, row_blocks), h, j,
            ),
            grid=(batch, kv_heads, key_blocks, group * row_blocks),
            results=2,
        )  # fmt: skip
    return dq, dk, dv
