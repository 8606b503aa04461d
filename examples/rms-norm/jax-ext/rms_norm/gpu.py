"""The kernels for GPUs, through Pallas's Triton backend: a program a few whole rows."""

import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

from kernelhub import tunable

from . import formulas

_LARGEST_TILE = 16384  # elements in registers: 32 a thread at 16 warps, beyond which it spills


def _width(columns):
    return max(16, pl.next_power_of_2(columns))


def _default(arguments):
    width = _width(arguments["x"].shape[1])
    warps = max(1, min(16, width // 512))
    return {"block_rows": max(1, min(8, 2048 // width)), "num_warps": warps}


def _fits(block_rows, columns):
    """Fewer rows where the tile would not stay in registers: rows of one tile are long already."""
    return max(1, min(block_rows, _LARGEST_TILE // _width(columns)))


def _inside(shape, count, columns):
    """Which elements of a tile exist."""
    row = pl.program_id(0) * shape[0] + jnp.arange(shape[0])
    return (row < count)[:, None] & (jnp.arange(shape[1]) < columns)[None, :]


def _forward_body(x, w, y, *, eps, count, columns):
    inside = _inside(x.shape, count, columns)
    column = jnp.arange(x.shape[1]) < columns
    rows = plt.load(x, mask=inside, other=0.0)
    weight = plt.load(w, mask=column, other=0.0)[None, :]
    result = formulas.forward(rows, weight, eps=eps, columns=columns)
    plt.store(y, result.astype(y.dtype), mask=inside)


def _backward_body(x, w, dy, dx, dw, *, eps, count, columns):
    inside = _inside(x.shape, count, columns)
    column = jnp.arange(x.shape[1]) < columns
    rows, drows = (plt.load(ref, mask=inside, other=0.0) for ref in (x, dy))
    weight = plt.load(w, mask=column, other=0.0)[None, :]
    dx_rows, dw_row = formulas.backward(rows, weight, drows, eps=eps, columns=columns)
    plt.store(dx, dx_rows.astype(dx.dtype), mask=inside)
    plt.store(dw, dw_row.reshape(-1), mask=column)


def _call(body, arrays, results, *, block_rows, num_warps, interpret):
    count, columns = arrays[0].shape
    width = _width(columns)
    rows = pl.BlockSpec((block_rows, width), lambda i: (i, 0))
    weight = pl.BlockSpec((width,), lambda i: (0,))
    partial = pl.BlockSpec((None, None, width), lambda i: (i, 0, 0))
    return pl.pallas_call(
        functools.partial(body, count=count, columns=columns),
        grid=(pl.cdiv(count, block_rows),),
        in_specs=[rows, weight, *[rows] * (len(arrays) - 2)],
        out_specs=[partial if len(result.shape) == 3 else rows for result in results],
        out_shape=results,
        compiler_params=plt.CompilerParams(num_warps=num_warps, num_stages=1),
        interpret=interpret,
    )(*arrays)


_SPACE = {"block_rows": (1, 2, 4, 8), "num_warps": (1, 2, 4, 8, 16)}


@tunable(space=_SPACE, default=_default, key=["interpret"])
def rms_norm_forward(x, weight, *, eps, interpret=False, block_rows, num_warps):
    """(M, N) and (N,) to (M, N) in the dtype of x."""
    body = functools.partial(_forward_body, eps=eps)
    results = [jax.ShapeDtypeStruct(x.shape, x.dtype)]
    shape = {"block_rows": _fits(block_rows, x.shape[1]), "num_warps": num_warps}
    return _call(body, (x, weight), results, **shape, interpret=interpret)[0]


@tunable(space=_SPACE, default=_default, key=["interpret"])
def rms_norm_backward(x, weight, dy, *, eps, interpret=False, block_rows, num_warps):
    """(M, N), (N,), (M, N) to dx (M, N) and dw (blocks, 1, N) float32, to be added up."""
    body = functools.partial(_backward_body, eps=eps)
    block_rows = _fits(block_rows, x.shape[1])
    results = [
        jax.ShapeDtypeStruct(x.shape, x.dtype),
        jax.ShapeDtypeStruct((pl.cdiv(x.shape[0], block_rows), 1, x.shape[1]), jnp.float32),
    ]
    shape = {"block_rows": block_rows, "num_warps": num_warps}
    return _call(body, (x, weight, dy), results, **shape, interpret=interpret)
