"""Forward attention for TPU: one tunable, two strategies that differ in structure.

*stream* leaves K and V in HBM; each block of rows runs a pipeline over them, which starts anew (a
bubble of one block's copy) for every block of rows. *resident* copies all of K and V of a head into
VMEM once, behind the work of the head before, and reads them there: no bubbles, but
`2 x 2 x S x D x element size` bytes have to fit.
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
_UNROLL = 4


def sizes(q, k, block_q, block_k):
    """The blocks, not beyond what the sequences fill. All are multiples of 128."""
    return tuple(
        min(block, pl.cdiv(length, 128) * 128)
        for block, length in ((block_q, q.shape[2]), (block_k, k.shape[2]))
    )


def _step(q, read, state, *, block, first_row, keys, block_k, shift, scale, widen):
    """One block of keys, masked only where the sequence ends in it or the diagonal crosses it."""
    first_key = block * block_k

    def add(masked):
        k, v = read()
        mask = None
        if masked:
            mask = functools.partial(
                softmax.visible, first_row=first_row, first_key=first_key, keys=keys, shift=shift
            )
        if masked and keys % block_k:
            v = softmax.zero_missing(v, first_key, keys)
        softmax.add_block(q, k, v, state, scale, mask=mask, widen=widen)

    past_end = first_key + block_k > keys
    crossed = False if shift is None else first_key + block_k - 1 > first_row + shift
    if shift is None and keys % block_k == 0:
        add(masked=False)
        return
    needed = past_end | crossed
    pl.when(needed)(functools.partial(add, masked=True))
    pl.when(jnp.logical_not(needed))(functools.partial(add, masked=False))


def _stream_body(
    q, k_hbm, v_hbm, out, lse, *state, group, block_k, buffers, keys, shift, scale, widen
):
    batch, head, row_block = (pl.program_id(axis) for axis in range(3))
    block_q = q.shape[0]
    softmax.start(*state)

    def inner(k, v):
        _step(
            q[...], lambda: (k[...], v[...]), state, block=pl.program_id(0),
            first_row=row_block * block_q, keys=keys, block_k=block_k, shift=shift, scale=scale,
            widen=widen,
        )  # fmt: skip

    spec = pl.BlockSpec(
        (block_k, q.shape[1]), lambda block: (block, 0), pipeline_mode=pl.Buffered(buffers)
    )
    steps = softmax.blocks_seen(row_block, block_q=block_q, block_k=block_k, keys=keys, shift=shift)
    kv_head = lax.div(head, group)
    pltpu.emit_pipeline(inner, grid=(steps,), in_specs=[spec, spec])(
        k_hbm.at[batch, kv_head], v_hbm.at[batch, kv_head]
    )
    softmax.finish(state, out, lse)


def _resident_body(q, k, v, out, lse, *state, block_k, keys, shift, scale, widen):
    row_block, block_q = pl.program_id(2), q.shape[0]
    softmax.start(*state)

    def inner(block, _):
        rows = pl.ds(pl.multiple_of(block * block_k, 128), block_k)
        _step(
            q[...], lambda: (k[rows, :], v[rows, :]), state, block=block,
            first_row=row_block * block_q, keys=keys, block_k=block_k, shift=shift, scale=scale,
            widen=widen,
        )  # fmt: skip

    steps = softmax.blocks_seen(row_block, block_q=block_q, block_k=block_k, keys=keys, shift=shift)
    static = isinstance(steps, int)
    lax.fori_loop(0, steps, inner, None, unroll=min(_UNROLL, steps) if static else None)
    softmax.finish(state, out, lse)


def _padded(x, block):
    return jnp.pad(x, ((0, 0), (0, 0), (0, -x.shape[2] % block), (0, 0)))


def stream(q, k, v, *, block_q, block_k, buffers, interpret, **options):
    """K and V pass through VMEM, `buffers` blocks of each at a time."""
    keys = k.shape[2]
    if interpret is True:  # which has no copies of a size known at run time only
        k, v = _padded(k, block_k), _padded(v, block_k)
    body = functools.partial(
        _stream_body, group=q.shape[1] // k.shape[1], block_k=block_k, buffers=buffers
    )
    anywhere = pl.BlockSpec(memory_space=pl.ANY)
    what = f"stream with block_q={block_q}, block_k={block_k}, buffers={buffers}"
    limit = None
    if not interpret:
        limit = vmem.check(q, k, kv_rows=buffers * block_k, block_q=block_q, what=what)
    params = pltpu.CompilerParams(dimension_semantics=("parallel",) * 3, vmem_limit_bytes=limit)
    return _call(body, q, k, v, anywhere, block_q, params, interpret, keys=keys, **options)


def resident(q, k, v, *, block_q, block_k, buffers, interpret, **options):
    """All of K and V of a head are in VMEM, those of the next head on their way."""
    group = q.shape[1] // k.shape[1]
    rows = pl.cdiv(k.shape[2], block_k) * block_k
    body = functools.partial(_resident_body, block_k=block_k)
    whole = pl.BlockSpec(
        (None, None, rows, q.shape[3]),
        lambda batch, head, block: (batch, lax.div(head, group), 0, 0),
        pipeline_mode=pl.Buffered(buffers),
    )
    what = f"resident with block_q={block_q}"
    limit = None
    if not interpret:
        limit = vmem.check(q, k, kv_rows=buffers * rows, block_q=block_q, what=what)
    params = pltpu.CompilerParams(
        dimension_semantics=("parallel", "parallel", "arbitrary"), vmem_limit_bytes=limit
    )
    return _call(body, q, k, v, whole, block_q, params, interpret, keys=k.shape[2], **options)


def _call(body, q, k, v, kv_spec, block_q, params, interpret, **numbers):
    batch, heads, queries, dim = q.shape
    rows = pl.BlockSpec((None, None, block_q, dim), lambda b, h, i: (b, h, i, 0))
    out, lse = pl.pallas_call(
        functools.partial(body, widen=bool(interpret), **numbers),
        grid=(batch, heads, pl.cdiv(queries, block_q)),
        in_specs=[rows, kv_spec, kv_spec],
        out_specs=[rows, pl.BlockSpec((None, None, 1, block_q), lambda b, h, i: (b, h, 0, i))],
        out_shape=[
            jax.ShapeDtypeStruct(q.shape, q.dtype),
            jax.ShapeDtypeStruct((batch, heads, 1, queries), jnp.float32),
        ],
        scratch_shapes=[
            pltpu.VMEM((block_q, softmax.LANES), jnp.float32),
            pltpu.VMEM((block_q, softmax.LANES), jnp.float32),
            pltpu.VMEM((block_q, dim), jnp.float32),
        ],
        compiler_params=params,
        interpret=interpret,
        name="attention_forward",
    )(q, k, v)
    return out, lse[:, :, 0]


def _default(arguments):
    """Resident while K and V of a head are small beside any chip's VMEM, else stream."""
    k = arguments["k"]
    held = 2 * 2 * vmem.padded(k.shape[2], k.shape[3], k.dtype.itemsize)
    strategy = "resident" if held <= 4 << 20 else "stream"
    return {"strategy": strategy, "block_q": 512, "block_k": 512, "buffers": 2}


def _sound(config):
    """A head's K and V are copied behind the head before: a third buffer would only take room."""
    return config["strategy"] == "stream" or config["buffers"] == 2


@tunable(
    space={
        "strategy": {"stream": stream, "resident": resident},
        "block_q": (128, 256, 512, 1024),
        "block_k": (128, 256, 512, 1024, 2048),
        "buffers": (2, 3),
    },
    conditions=[_sound],
    default=_default,
    key=["causal"],
)
def attention_tpu(
    q, k, v, *, causal, scale, shift=None, interpret=False, strategy, block_q, block_k, buffers
):
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
    chip = contextlib.nullcontext()
    if interpret:
        chip = use_abstract_mesh(AbstractMesh((), (), abstract_device=INTERPRETED))
    with chip:
        return strategy(
            q, k, v, block_q=block_q, block_k=block_k, buffers=buffers, interpret=interpret,
            shift=shift if causal else None, scale=scale,
        )  # fmt: skip
