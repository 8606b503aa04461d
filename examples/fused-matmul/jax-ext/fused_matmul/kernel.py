"""The Pallas kernel: a tiled product with a float32 accumulator and a fused epilogue."""

import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernelhub import tunable

ACTIVATIONS = {
    "none": lambda y: y,
    "relu": lambda y: jnp.maximum(y, 0.0),
    "silu": lambda y: y * jax.nn.sigmoid(y),
    # The tanh form of Hendrycks and Gimpel, "Gaussian Error Linear Units" (2016).
    "gelu": lambda y: 0.5 * y * (1.0 + jnp.tanh(0.7978845608028654 * (y + 0.044715 * y * y * y))),
}


def _product(x, w, interpret):
    """x @ w, summed in float32.

    float32 operands are multiplied as such; a TPU would round them to bfloat16 by default. XLA's
    CPU backend lacks a bfloat16 product with a float32 result in some layouts, so interpreted
    operands are widened, which changes no product.
    """
    if interpret:
        x, w = x.astype(jnp.float32), w.astype(jnp.float32)
    exact = jax.lax.Precision.HIGHEST if x.dtype == jnp.float32 else None
    return jnp.dot(x, w, preferred_element_type=jnp.float32, precision=exact)


def _body(x_ref, w_ref, bias_ref, y_ref, total_ref, *, k_size, block_k, activation, interpret):
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
    total_ref[...] += _product(x, w, interpret)

    @pl.when(step == pl.num_programs(2) - 1)
    def _():
        y = total_ref[...] + bias_ref[...].astype(jnp.float32)
        y_ref[...] = ACTIVATIONS[activation](y).astype(y_ref.dtype)


def _sound(config):
    """Two blocks of each operand, the result's and its float32 sum within 12 of v4's 16 MiB."""
    m, n, k = config["block_m"], config["block_n"], config["block_k"]
    return 2 * 4 * (m * k + k * n + m * n) + 4 * m * n <= 12 << 20


@tunable(
    space={
        "block_m": (128, 256, 512, 1024),
        "block_n": (128, 256, 512, 1024),
        "block_k": (256, 512, 1024, 2048),
    },
    conditions=[_sound],
    default={"block_m": 256, "block_n": 256, "block_k": 512},
    key=["activation"],
)
def matmul(x, w, bias, *, activation, interpret=False, block_m, block_n, block_k):
    """(M, K) x (K, N) + (1, N) -> (M, N) in the dtype of x. Blocks need not divide the sizes."""
    (m, k), n = x.shape, w.shape[1]
    block_m, block_n, block_k = min(block_m, m), min(block_n, n), min(block_k, k)
    limit = None if interpret else pltpu.get_tpu_info().vmem_capacity_bytes
    return pl.pallas_call(
        functools.partial(
            _body,
            k_size=k,
            block_k=block_k,
            activation=activation,
            interpret=bool(interpret),
        ),
        out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
        grid=(pl.cdiv(m, block_m), pl.cdiv(n, block_n), pl.cdiv(k, block_k)),
        in_specs=[
            pl.BlockSpec((block_m, block_k), lambda i, j, step: (i, step)),
            pl.BlockSpec((block_k, block_n), lambda i, j, step: (step, j)),
            pl.BlockSpec((1, block_n), lambda i, j, step: (0, j)),
        ],
        out_specs=pl.BlockSpec((block_m, block_n), lambda i, j, step: (i, j)),
        scratch_shapes=[pltpu.VMEM((block_m, block_n), jnp.float32)],
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "parallel", "arbitrary"), vmem_limit_bytes=limit
        ),
        interpret=interpret,
        name="fused_matmul",
    )(x, w, bias)
