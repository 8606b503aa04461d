"""Forward attention for TPU: one tunable, two strategies that differ in structure.

*stream* leaves K and V in HBM; each block of rows runs a pipeline over them, which starts anew (a
bubble of one block's copy) for every block of rows. *resident* copies all of K and V of a head into
VMEM once, behind the work of the head before, and reads them there: no bubbles, but
`2 x 2 x S x D x element size` bytes have to fit.

Both take keys by the window, a few blocks in straight code: the products of the next block are
issued before the exponentials of the last, so that matrix and vector units work at the same time.
"""

import contextlib
import functools

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import AbstractDevice, AbstractMesh, use_abstract_mesh

from kernelhub import tunable

from . import softmax, vmem

# What the interpreter is told to be; emit_pipeline asks for the sizes of a chip.
INTERPRETED = AbstractDevice(device_kind="TPU v5 lite", num_cores=1, platform="tpu")


def sizes(q, k, block_q, block_k):
    """The blocks, not beyond what the sequences fill. All are multiples of 128."""
    return tuple(
        min(block, pl.cdiv(length, 128) * 128)
        for block, length in ((block_q, q.shape[2]), (block_k, k.shape[2]))
    )


def _window(q, k, v, state, held, *, first_row, first_key, keys, shift, scale, widen):
    """A window of keys, masked only where the sequence ends in it or the diagonal crosses it.

    `held` are buffers of scores, one block each: while one is added the next is filled.
    """
    window, block_k = k.shape[0], held[0].shape[0]
    blocks = [pl.ds(start, block_k) for start in range(0, window, block_k)]

    def score(block, masked):
        s = softmax.scores(q, k[block, :], scale, widen)
        if masked:
            seen = softmax.visible(
                s.shape, first_row, first_key + block.start, keys=keys, shift=shift
            )
            s = jnp.where(seen, s, softmax.MASKED)
        return s

    def add(masked):
        held[0][...] = score(blocks[0], masked)
        for number, block in enumerate(blocks):
            if block is not blocks[-1]:
                held[(number + 1) % 2][...] = score(blocks[number + 1], masked)
            values = v[block, :]
            if masked and keys % window:
                values = softmax.zero_missing(values, first_key + block.start, keys)
            softmax.add_block(held[number % 2][...], values, state, widen)

    if shift is None and keys % window == 0:
        add(masked=False)
        return
    past_end = first_key + window > keys
    crossed = False if shift is None else first_key + window - 1 > first_row + shift
    needed = past_end | crossed
    pl.when(needed)(functools.partial(add, masked=True))
    pl.when(jnp.logical_not(needed))(functools.partial(add, masked=False))


def _stream_body(
    q, k_hbm, v_hbm, out, lse, *scratch, group, window, buffers, keys, shift, scale, widen
):
    batch, head, row_block = (pl.program_id(axis) for axis in range(3))
    state, held = scratch[:3], scratch[3:]
    block_q = q.shape[0]
    softmax.start(*state)

    def inner(k, v):
        _window(
            q[...], k, v, state, held, first_row=row_block * block_q,
            first_key=pl.program_id(0) * window, keys=keys, shift=shift, scale=scale, widen=widen,
        )  # fmt: skip

    spec = pl.BlockSpec(
        (window, q.shape[1]), lambda block: (block, 0), pipeline_mode=pl.Buffered(buffers)
    )
    steps = softmax.blocks_seen(row_block, block_q=block_q, block_k=window, keys=keys, shift=shift)
    kv_head = lax.div(head, group)
    pltpu.emit_pipeline(inner, grid=(steps,), in_specs=[spec, spec])(
        k_hbm.at[batch, kv_head], v_hbm.at[batch, kv_head]
    )
    softmax.finish(state, out, lse)


def _resident_body(q, k, v, out, lse, *scratch, window, keys, shift, scale, widen):
    row_block, block_q = pl.program_id(2), q.shape[0]
    state, held = scratch[:3], scratch[3:]
    softmax.start(*state)

    def inner(step, _):
        first_key = pl.multiple_of(step * window, 128)
        rows = pl.ds(first_key, window)
        _window(
            q[...], k.at[rows, :], v.at[rows, :], state, held, first_row=row_block * block_q,
            first_key=first_key, keys=keys, shift=shift, scale=scale, widen=widen,
        )  # fmt: skip

    steps = softmax.blocks_seen(row_block, block_q=block_q, block_k=window, keys=keys, shift=shift)
    lax.fori_loop(0, steps, inner, None)
    softmax.finish(state, out, lse)


def _padded(x, block):
    return jnp.pad(x, ((0, 0), (0, 0), (0, -x.shape[2] % block), (0, 0)))


def stream(q, k, v, *, block_q, block_k, blocks, buffers, interpret, **options):
    """K and V pass through VMEM, `buffers` windows of each at a time."""
    keys, window = k.shape[2], block_k * blocks
    if interpret is True:  # which has no copies of a size known at run time only
        k, v = _padded(k, window), _padded(v, window)
    body = functools.partial(
        _stream_body, group=q.shape[1] // k.shape[1], window=window, buffers=buffers
    )
    anywhere = pl.BlockSpec(memory_space=pl.ANY)
    what = f"stream with block_q={block_q}, block_k={block_k}, blocks={blocks}, buffers={buffers}"
    limit = None
    if not interpret:
        limit = vmem.check(
            q, k, kv_rows=buffers * window, block_q=block_q, block_k=block_k, blocks=blocks,
            what=what,
        )  # fmt: skip
    params = pltpu.CompilerParams(dimension_semantics=("parallel",) * 3, vmem_limit_bytes=limit)
    tiles = (block_q, block_k, blocks)
    return _call(body, q, k, v, anywhere, tiles, params, interpret, keys=keys, **options)


def resident(q, k, v, *, block_q, block_k, blocks, buffers, interpret, **options):
    """All of K and V of a head are in VMEM, those of the next head on their way."""
    group, window = q.shape[1] // k.shape[1], block_k * blocks
    rows = pl.cdiv(k.shape[2], window) * window
    body = functools.partial(_resident_body, window=window)
    whole = pl.BlockSpec(
        (None, None, rows, q.shape[3]),
        lambda batch, head, block: (batch, lax.div(head, group), 0, 0),
        pipeline_mode=pl.Buffered(buffers),
    )
    what = f"resident with block_q={block_q}, block_k={block_k}, blocks={blocks}"
    limit = None
    if not interpret:
        limit = vmem.check(
            q, k, kv_rows=buffers * rows, block_q=block_q, block_k=block_k, blocks=blocks,
            what=what,
        )  # fmt: skip
    params = pltpu.CompilerParams(
        dimension_semantics=("parallel", "parallel", "arbitrary"), vmem_limit_bytes=limit
    )
    tiles = (block_q, block_k, blocks)
    return _call(body, q, k, v, whole, tiles, params, interpret, keys=k.shape[2], **options)


def _call(body, q, k, v, kv_spec, tiles, params, interpret, **numbers):
    batch, heads, queries, dim = q.shape
    block_q, block_k, blocks = tiles
    rows = pl.BlockSpec((None, None, block_q, dim), lambda b, h, i: (b, h, i, 0))
    statistics, sums = (pltpu.VMEM((n, block_q), jnp.float32) for n in (1, dim))
    held = [pltpu.VMEM((block_k, block_q), jnp.float32)] * min(blocks, 2)
    out, lse = pl.pallas_call(
        functools.partial(body, widen=bool(interpret), **numbers),
        grid=(batch, heads, pl.cdiv(queries, block_q)),
        in_specs=[rows, kv_spec, kv_spec],
        out_specs=[rows, pl.BlockSpec((None, None, 1, block_q), lambda b, h, i: (b, h, 0, i))],
        out_shape=[
            jax.ShapeDtypeStruct(q.shape, q.dtype),
            jax.ShapeDtypeStruct((batch, heads, 1, queries), jnp.float32),
        ],
        scratch_shapes=[statistics, statistics, sums, *held],
        compiler_params=params,
        interpret=interpret,
        name="attention_forward",
    )(q, k, v)
    return out, lse[:, :, 0]


def _default(arguments):
    """Resident while K and V of a head are small beside any chip's VMEM, else stream.

    A product of float32 is six of bfloat16, in straight code: half the rows compile in bearable
    time.
    """
    k = arguments["k"]
    held = 2 * 2 * vmem.padded(k.shape[2], k.shape[3], k.dtype.itemsize)
    strategy = "resident" if held <= 4 << 20 else "stream"
    rows = 512 if k.dtype.itemsize == 2 else 256
    return {"strategy": strategy, "block_q": rows, "block_k": 512, "blocks": 2, "buffers": 2}


def _sound(config):
    """Configurations that can win.

    A head's K and V are copied behind the head before: a third buffer would only take room. Longer
    windows than 2048 keys compute much that the diagonal or the end masks away.
    """
    enough = config["strategy"] == "stream" or config["buffers"] == 2
    return enough and config["block_k"] * config["blocks"] <= 2048


def _features(arguments):
    """What decides whether a head's K and V can be resident: the bytes, beside usual blocks."""
    q, k = arguments["q"], arguments["k"]
    blocks = {"block_q": 512, "block_k": 512, "blocks": 2}
    return {"resident_bytes": vmem.needed(q, k, kv_rows=2 * k.shape[2], **blocks)}


@tunable(
    space={
        "strategy": {"stream": stream, "resident": resident},
        "block_q": (128, 256, 512, 1024),
        "block_k": (256, 512, 1024),
        "blocks": (2, 4),
        "buffers": (2, 3),
    },
    conditions=[_sound],
    default=_default,
    features=_features,
    key=["causal"],
)
def attention_tpu(
    q, k, v, *, causal, scale, shift=None, interpret=False,
    strategy, block_q, block_k, blocks, buffers,
):  # fmt: skip
    """softmax(q @ k^T * scale) @ v, one head at a time, on a TPU or in Pallas's interpreters.

    Args:
        q: (B, Hq, Sq, D), float32 or bfloat16.
        k, v: (B, Hkv, Skv, D), the dtype of q; Hq a multiple of Hkv; no length 0.
        causal: row i sees keys up to i + shift.
        scale: factor of the scores.
        shift: Skv - Sq where None.
        interpret: False, True, or `pltpu.InterpretParams`, which for a length that is no multiple
            of the block has to allow reads up to the end of the last memory tile
            (`out_of_bounds_reads="uninitialized"`), as the chip does.

    Returns:
        (B, Hq, Sq, D) in the dtype of q and the log-sum-exp of each row, (B, Hq, Sq) float32;
        0 and -inf for rows that see no key.

    Raises:
        OutOfResources: the blocks do not fit into the chip's VMEM.
    """
    if causal and shift is None:
        shift = k.shape[2] - q.shape[2]
    block_q, block_k = sizes(q, k, block_q, block_k)
    blocks = min(blocks, pl.cdiv(k.shape[2], block_k))
    chip = contextlib.nullcontext()
    if interpret:
        chip = use_abstract_mesh(AbstractMesh((), (), abstract_device=INTERPRETED))
    with chip:
        return strategy(
            q, k, v, block_q=block_q, block_k=block_k, blocks=blocks, buffers=buffers,
            interpret=interpret, shift=shift if causal else None, scale=scale,
        )  # fmt: skip
