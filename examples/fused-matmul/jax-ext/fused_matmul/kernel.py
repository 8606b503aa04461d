"""The Pallas kernel: a tiled product with a float32 accumulator and a fused epilogue."""

import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

ACTIVATIONS = {
    "none": lambda y: y,
    "relu": lambda y: jnp.maximum(y, 0.0),
    "silu": lambda y: y * jax.nn.sigmoid(y),
    # The tanh form of Hendrycks and Gimpel, "Gaussian Error Linear Units" (2016).
    "gelu": lambda y: 0.5 * y * (1.0 + jnp.tanh(0.7978845608028654 * (y + 0.044715 * y * y * y))),
}


def _body(x_ref, w_ref, bias_ref, y_ref, total_ref, *, k_size, block_k, activation):
    """One (block_m, block_n) tile of the result; the last grid axis walks over K."""
    step = pl.program_id(2)

    @pl.when(step == 0)
    def _():
        total_ref[...] = jnp.zeros_like(total_ref)

    x, w = x_ref[...], w_ref[...]
    if k_size % block_k:
        # The last block reaches past K, where the contents are undefined.
        left = k_size - step * block_k
        x = jnp.where(jax.lax.broadcasted_iota(jnp.int32, x.shape, 1) < left, x, 0)
        w = jnp.where(jax.lax.broadcasted_iota(jnp.int32, w.shape, 0) < left, w, 0)
    total_ref[...] += jnp.dot(x, w, preferred_element_type=jnp.float32)

    @pl.when(step == pl.num_programs(2) - 1)
    def _():
        y = total_ref[...] + bias_ref[...].astype(jnp.float32)
        y_ref[...] = ACTIVATIONS[activation](y).astype(y_ref.dtype)


@functools.partial(
    jax.jit, static_argnames=("activation", "block_m", "block_n", "block_k", "interpret")
)
def matmul(x, w, bias, *, activation, block_m, block_n, block_k, interpret):
    """(M, K) x (K, N) + (1, N) -> (M, N) in the dtype of x. Blocks need not divide the sizes."""
    (m, k), n = x.shape, w.shape[1]
    block_m, block_n, block_k = min(block_m, m), min(block_n, n), min(block_k, k)
    return pl.pallas_call(
        functools.partial(_body, k_size=k, block_k=block_k, activation=activation),
        out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
        grid=(pl.cdiv(m, block_m), pl.cdiv(n, block_n), pl.cdiv(k, block_k)),
        in_specs=[
            pl.BlockSpec((block_m, block_k), lambda i, j, step: (i, step)),
            pl.BlockSpec((block_k, block_n), lambda i, j, step: (step, j)),
            pl.BlockSpec((1, block_n), lambda i, j, step: (0, j)),
        ],
        out_specs=pl.BlockSpec((block_m, block_n), lambda i, j, step: (i, j)),
        scratch_shapes=[pltpu.VMEM((block_m, block_n), jnp.float32)],
        interpret=interpret,
    )(x, w, bias)
