"""The kernels for TPU, and for Pallas's interpreter: blocks of whole rows pass through VMEM."""

import functools

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernelhub import tunable

from . import formulas

_BLOCKS = (8, 16, 32, 64, 128, 256, 512, 1024)
# Elements of a block in float32: 1 MiB, so that a block and its float32 copies fit v4's 16 MiB.
_ELEMENTS = 2**18


class OutOfResources(ValueError):
    """Blocks that cannot fit into VMEM, by the name under which dispatch knows it."""


def _default(arguments):
    columns = arguments["x"].shape[1]
    fitting = [rows for rows in _BLOCKS if rows * columns <= _ELEMENTS]
    return {"block_rows": max(fitting, default=_BLOCKS[0])}


def _forward_body(x, w, y, *, eps):
    y[...] = formulas.forward(x[...], w[...], eps=eps, columns=x.shape[1]).astype(y.dtype)


def _backward_body(x, w, dy, dx, dw, *, eps, count):
    rows, columns = x.shape
    row = pl.program_id(0) * rows + lax.broadcasted_iota(jnp.int32, (rows, columns), 0)
    # Past the last row contents are undefined, and the sum over rows would take them in.
    values = (jnp.where(row < count, a[...], jnp.zeros_like(a)) for a in (x, dy))
    x_rows, dy_rows = (x[...], dy[...]) if count % rows == 0 else values
    dx_rows, dw_row = formulas.backward(x_rows, w[...], dy_rows, eps=eps, columns=columns)
    dx[...] = dx_rows.astype(dx.dtype)
    dw[...] = dw_row


def _call(body, arrays, results, *, block_rows, interpret):
    """`body` over blocks of rows; the second array is the weight, rank 3 is one result a block."""
    count, columns = arrays[0].shape
    limit = None if interpret else _limit(arrays, results, block_rows)
    rows = pl.BlockSpec((block_rows, columns), lambda i: (i, 0))
    weight = pl.BlockSpec((1, columns), lambda i: (0, 0))
    partial = pl.BlockSpec((None, 1, columns), lambda i: (i, 0, 0))
    return pl.pallas_call(
        body,
        grid=(pl.cdiv(count, block_rows),),
        in_specs=[rows, weight, *[rows] * (len(arrays) - 2)],
        out_specs=[partial if len(result.shape) == 3 else rows for result in results],
        out_shape=results,
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel",), vmem_limit_bytes=limit
        ),
        interpret=interpret,
    )(*arrays)


def _limit(arrays, results, block_rows):
    """The chip's VMEM in bytes.

    Raises:
        OutOfResources: the blocks do not fit; the text has the bytes needed and available.
    """
    info = pltpu.get_tpu_info()
    columns = pl.cdiv(arrays[0].shape[1], 128) * 128
    # One of each that is worked on and one that moves, and a block in float32.
    bytes_ = [a.dtype.itemsize for a in (*arrays, *results) if len(a.shape) == 2 and a.shape[0] > 1]
    need = block_rows * columns * (2 * sum(bytes_) + 4)
    if need > info.vmem_capacity_bytes:
        raise OutOfResources(
            f"RMS norm of {arrays[0].shape} {arrays[0].dtype} by {block_rows} whole rows needs at "
            f"least {need / 2**20:.1f} MiB of VMEM and TPU {info.chip_version.value} has "
            f"{info.vmem_capacity_bytes / 2**20:.0f} MiB: rows may not be longer"
        )
    return info.vmem_capacity_bytes


def _fitting(block_rows, count, dtype):
    """No more rows than there are, whole memory tiles of 8 rows of 32 bits."""
    tile = 32 // dtype.itemsize
    return max(tile, min(block_rows, pl.cdiv(count, tile) * tile))


@tunable(space={"block_rows": _BLOCKS}, default=_default, key=["interpret"])
def rms_norm_forward(x, weight, *, eps, interpret=False, block_rows):
    """(M, N) and (N,) to (M, N) in the dtype of x."""
    block_rows = _fitting(block_rows, x.shape[0], x.dtype)
    body = functools.partial(_forward_body, eps=eps)
    results = [jax.ShapeDtypeStruct(x.shape, x.dtype)]
    arrays = (x, weight[None, :])
    return _call(body, arrays, results, block_rows=block_rows, interpret=interpret)[0]


@tunable(space={"block_rows": _BLOCKS}, default=_default, key=["interpret"])
def rms_norm_backward(x, weight, dy, *, eps, interpret=False, block_rows):
    """(M, N), (N,), (M, N) to dx (M, N) and dw (blocks, 1, N) float32, to be added up."""
    block_rows = _fitting(block_rows, x.shape[0], x.dtype)
    count, columns = x.shape
    body = functools.partial(_backward_body, eps=eps, count=count)
    results = [
        jax.ShapeDtypeStruct(x.shape, x.dtype),
        jax.ShapeDtypeStruct((pl.cdiv(count, block_rows), 1, columns), jnp.float32),
    ]
    arrays = (x, weight[None, :], dy)
    return _call(body, arrays, results, block_rows=block_rows, interpret=interpret)
