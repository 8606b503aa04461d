"""A tiled Pallas kernel, tunable: x * w + 1, row by row."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from kernelhub import tunable

__all__ = ["scale"]


class OutOfResources(ValueError):
    """More than any chip has, seen while tracing: dispatch takes the next in rank."""


def _body(x_ref, w_ref, y_ref, *, times):
    def turn(_, x):
        return x * w_ref[...] + 1.0

    start = x_ref[...].astype(jnp.float32)
    y_ref[...] = jax.lax.fori_loop(0, times, turn, start).astype(y_ref.dtype)


@tunable(
    space={"block_m": (32, 64, 256, 1024, 65536), "wrong": (False, True)},
    default={"block_m": 64, "wrong": False},
    key=["times"],
)
def tiled(x, w, *, times=1, interpret=False, block_m, wrong):
    """`times` times x * w + 1."""
    (m, n), block_m = x.shape, min(block_m, x.shape[0])
    if block_m * n * 4 > 1 << 26:
        raise OutOfResources(f"a block of {block_m} rows of {n} does not fit")

    def body(*refs):
        _body(*refs, times=times + wrong)

    return pl.pallas_call(
        body,
        grid=(pl.cdiv(m, block_m),),
        in_specs=[
            pl.BlockSpec((block_m, n), lambda i: (i, 0)),
            pl.BlockSpec((1, n), lambda i: (0, 0)),
        ],
        out_specs=pl.BlockSpec((block_m, n), lambda i: (i, 0)),
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        interpret=interpret,
    )(x, w)


@jax.jit
def scale(x, w):
    """x * w + 1, for x (M, N) and w (N,)."""
    return tiled(x, w[None, :], interpret=jax.default_backend() == "cpu")
