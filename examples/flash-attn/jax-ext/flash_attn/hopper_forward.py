"""Forward attention for NVIDIA Hopper through Pallas's Mosaic GPU backend.

Three warpgroups a program: one copies blocks of K and V into a ring in shared memory (TMA), two
take 64 rows each through `wgmma`. The two take turns: while one is in the matrix units the other is
in its softmax (Shah et al., "FlashAttention-3", 2024).
"""

import functools
import inspect
import math

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from .vmem import OutOfResources

_LOG2E = math.log2(math.e)
ROWS = 64  # of a warpgroup: the height of a wgmma instruction
WORKERS = 2
TILE = ROWS * WORKERS
SHARED = 232448  # bytes of shared memory that a program may have
_REDUCTION = 1024  # bytes of it: rows are reduced within a warp
# The keyword by which versions of JAX take the results' shapes.
_OUT = "out_type" if "out_type" in inspect.signature(plgpu.kernel).parameters else "out_shape"
_BY_ROW, _BY_TILE = plgpu.Layout.WGMMA.reduce(1), plgpu.Layout.WGMMA


def _across(rows, shape):
    return lax.broadcast_in_dim(rows, shape, [0])


def _at(batch, head, start, length, heads_axis):
    rows = pl.ds(start, length)
    return (batch, head, rows) if heads_axis == 1 else (batch, rows, head)


def _bounds(first_row, *, block_k, keys, shift):
    """(blocks of keys that all rows of a tile see whole, blocks that some row sees)."""
    whole, every = jnp.int32(keys // block_k), jnp.int32(pl.cdiv(keys, block_k))
    if shift is None:
        return whole, every
    sees = first_row + shift + 1  # keys that the first row sees
    width = jnp.int32(block_k)
    full = jnp.minimum(lax.div(jnp.maximum(sees, 0), width), whole)
    last = jnp.maximum(sees + TILE - 1, 0)
    return full, jnp.minimum(lax.div(last + block_k - 1, width), every)


def _work(
    worker, first_row, bounds, q, ring, sync, lse,
    *, block_k, stages, dim, keys, shift, scale,
):  # fmt: skip
    """The rows of one warpgroup: leaves them in `q` and `lse`."""
    k_ring, v_ring, k_full, v_full, k_free, v_free = ring
    my_row = first_row + worker * ROWS
    shape = (ROWS, block_k)

    def take_turns():
        plgpu.barrier_arrive(sync)
        plgpu.barrier_wait(sync)

    def step(block, state, masked):
        maximum, total, sums = state
        slot = lax.rem(block, jnp.int32(stages))
        plgpu.barrier_wait(k_full.at[slot])

        def product(acc):
            plgpu.wgmma(acc, q, k_ring.at[slot].transpose((1, 0)))
            take_turns()
            return acc[...]

        s = pl.run_scoped(product, plgpu.ACC(shape, jnp.float32))
        plgpu.barrier_arrive(k_free.at[slot])
        if masked:
            key = block * block_k + plgpu.broadcasted_iota(jnp.int32, shape, 1, layout=_BY_TILE)
            seen = key < keys
            if shift is not None:
                row = my_row + plgpu.broadcasted_iota(jnp.int32, shape, 0, layout=_BY_TILE)
                seen &= key <= row + shift
            s = jnp.where(seen, s, -jnp.inf)
        now = jnp.maximum(maximum, s.max(axis=1) * (scale * _LOG2E))
        # A row that has seen no key yet: -inf - -inf is not a number.
        against = jnp.where(now == -jnp.inf, 0.0, now) if masked else now
        p = jnp.exp2(s * (scale * _LOG2E) - _across(against, shape))
        shrink = jnp.exp2(maximum - against)
        total = total * shrink + p.sum(axis=1)
        sums *= _across(shrink, (ROWS, dim))
        narrow = p.astype(q.dtype)
        sums, total, now, narrow = lax.optimization_barrier((sums, total, now, narrow))
        plgpu.barrier_arrive(sync)
        plgpu.barrier_wait(v_full.at[slot])
        plgpu.barrier_wait(sync)
        sums = pl.run_state(lambda acc: plgpu.wgmma(acc, narrow, v_ring.at[slot]))(
            plgpu.ACC.init(sums)
        )
        plgpu.barrier_arrive(v_free.at[slot])
        return now, total, sums

    state = (
        plgpu.layout_cast(jnp.full((ROWS,), -jnp.inf, jnp.float32), _BY_ROW),
        plgpu.layout_cast(jnp.zeros((ROWS,), jnp.float32), _BY_ROW),
        plgpu.layout_cast(jnp.zeros((ROWS, dim), jnp.float32), _BY_TILE),
    )
    full, every = bounds
    pl.when(worker == 1)(take_turns)
    state = lax.fori_loop(0, full, functools.partial(step, masked=False), state)
    if shift is not None or keys % block_k:
        state = lax.fori_loop(full, every, functools.partial(step, masked=True), state)
    pl.when(worker == 0)(take_turns)
    maximum, total, sums = state
    divisor = jnp.where(total == 0.0, 1.0, total)
    q[...] = (sums * _across(1.0 / divisor, (ROWS, dim))).astype(q.dtype)
    lse[...] = (maximum + jnp.log(divisor) * _LOG2E) * (1 / _LOG2E)
    plgpu.commit_smem()


def _feed(k, v, batch, kv_head, every, ring, *, block_k, stages, heads_axis):
    """The copying warpgroup: blocks of K and V into the ring, as its places become free."""
    k_ring, v_ring, k_full, v_full, k_free, v_free = ring

    def copy(block, _):
        slot = lax.rem(block, jnp.int32(stages))
        at = _at(batch, kv_head, block * block_k, block_k, heads_axis)
        pl.when(block >= stages)(lambda: plgpu.barrier_wait(k_free.at[slot]))
        plgpu.copy_gmem_to_smem(k.at[at], k_ring.at[slot], k_full.at[slot])
        pl.when(block >= stages)(lambda: plgpu.barrier_wait(v_free.at[slot]))
        plgpu.copy_gmem_to_smem(v.at[at], v_ring.at[slot], v_full.at[slot])

    lax.fori_loop(0, every, copy, None)


def forward(q, k, v, *, shift, scale, heads_axis, block_k, stages, interpret=None):
    """As `gpu_forward.attention_gpu`; float16 or bfloat16, D a multiple of 32 up to 256.

    Raises:
        OutOfResources: the ring does not fit into shared memory.
    """
    length_axis = 3 - heads_axis
    batches, heads, dim = q.shape[0], q.shape[heads_axis], q.shape[3]
    _check_shared(dim, q.dtype.itemsize, block_k, stages)
    queries, keys = q.shape[length_axis], k.shape[length_axis]
    group, tiles = heads // k.shape[heads_axis], pl.cdiv(queries, TILE)
    numbers = {"block_k": block_k, "stages": stages}

    def program(q_ref, k_ref, v_ref, out_ref, lse_ref):
        batch, head, tile = (lax.axis_index(name) for name in ("batch", "heads", "tiles"))
        worker, first_row = lax.axis_index("worker"), tile * TILE
        bounds = _bounds(first_row, block_k=block_k, keys=keys, shift=shift)

        def body(q_tiles, lse_tiles, q_full, ring, sync):
            @pl.when(worker < WORKERS)
            def _():
                plgpu.set_max_registers(232, action="increase")
                mine, row = q_tiles.at[worker], first_row + worker * ROWS
                at = _at(batch, head, row, ROWS, heads_axis)
                plgpu.copy_gmem_to_smem(q_ref.at[at], mine, q_full.at[worker])
                plgpu.barrier_wait(q_full.at[worker])
                _work(
                    worker, first_row, bounds, mine, ring, sync, lse_tiles.at[worker],
                    dim=dim, keys=keys, shift=shift, scale=scale, **numbers,
                )  # fmt: skip
                plgpu.copy_smem_to_gmem(mine, out_ref.at[at])
                plgpu.copy_smem_to_gmem(
                    lse_tiles.at[worker], lse_ref.at[batch, head, pl.ds(row, ROWS)]
                )
                plgpu.wait_smem_to_gmem(0)

            @pl.when(worker == WORKERS)
            def _():
                plgpu.set_max_registers(40, action="decrease")
                kv_head = lax.div(head, jnp.int32(group))
                _feed(
                    k_ref, v_ref, batch, kv_head, bounds[1], ring, heads_axis=heads_axis, **numbers
                )

        _with_scratch(body, q.dtype, dim, block_k, stages)

    out, lse = plgpu.kernel(
        program,
        **{
            _OUT: (
                jax.ShapeDtypeStruct(q.shape, q.dtype),
                jax.ShapeDtypeStruct((batches, heads, tiles * TILE), jnp.float32),
            )
        },
        grid=(heads, tiles, batches),
        grid_names=("heads", "tiles", "batch"),
        num_threads=WORKERS + 1,
        thread_name="worker",
        compiler_params=plgpu.CompilerParams(
            approx_math=True,
            reduction_scratch_bytes=_REDUCTION,
        ),
        **({} if interpret is None else {"interpret": interpret}),
    )(q, k, v)
    return out, lse[..., :queries]


def _check_shared(dim, itemsize, block_k, stages):
    need = (2 * stages * block_k + TILE) * dim * itemsize + TILE * 4 + _REDUCTION
    if need > SHARED:
        raise OutOfResources(
            f"{stages} blocks of {block_k} keys of {dim} need {need} bytes of shared memory, and "
            f"Hopper has {SHARED}: use smaller blocks, or fewer"
        )


def _with_scratch(body, dtype, dim, block_k, stages):
    """Shared memory in the layout that wgmma reads, and the barriers."""
    line = 64 if dim % 64 == 0 else 32  # elements of a swizzled line
    transforms = (plgpu.TilingTransform((8, line)), plgpu.SwizzleTransform(2 * line))
    ring = plgpu.SMEM((stages, block_k, dim), dtype, transforms=transforms)
    pl.run_scoped(
        body,
        plgpu.SMEM((WORKERS, ROWS, dim), dtype, transforms=transforms),
        plgpu.SMEM((WORKERS, ROWS), jnp.float32),
        plgpu.Barrier(num_barriers=WORKERS),
        (
            ring,
            ring,
            plgpu.Barrier(num_barriers=stages),
            plgpu.Barrier(num_barriers=stages),
            plgpu.Barrier(num_arrivals=WORKERS, num_barriers=stages),
            plgpu.Barrier(num_arrivals=WORKERS, num_barriers=stages),
        ),
        plgpu.Barrier(num_arrivals=WORKERS),
        collective_axes="worker",
    )
