import jax
from jax.experimental import pallas as pl

__all__ = ["double"]


def _double(x_ref, out_ref):
    out_ref[...] = x_ref[...] * 2


def double(x: jax.Array) -> jax.Array:
    """Return 2 * x."""
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return pl.pallas_call(_double, out_shape=shape, interpret=True)(x)
