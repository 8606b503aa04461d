"""What the JAX attention is tuned for on GPUs: the shapes of published comparisons, bf16."""

import functools

import jax
import jax.numpy as jnp
from flash_attn import flash_attn_func

from kernel_builder.tuning import Case, workload

# (B, H, S, D)
_FULL = [
    (2, 8, 128, 64), (4, 16, 512, 64), (1, 16, 1024, 64), (2, 16, 1024, 64), (4, 16, 1024, 64),
    (8, 16, 1024, 64), (4, 16, 2048, 64), (4, 16, 4096, 64), (2, 24, 4608, 64), (4, 16, 1024, 32),
    (2, 16, 1024, 128), (8, 16, 1024, 128), (16, 16, 1024, 128), (8, 32, 1024, 128),
    (32, 16, 1024, 128), (8, 16, 2048, 128), (8, 16, 4096, 128), (1, 24, 4608, 128),
    (8, 16, 1024, 256),
]  # fmt: skip
_CAUSAL = [(4, 16, 1024, 64), (8, 16, 2048, 128), (2, 8, 128, 64), (4, 16, 4096, 64)]
_HELD_OUT = [(2, 12, 768, 64), (8, 16, 1536, 128), (1, 32, 2048, 128), (12, 16, 256, 64)]


def _cases(shapes, causal, **options):
    for batch, heads, length, dim in shapes:
        yield Case(B=batch, H=heads, S=length, D=dim, causal=causal, **options)


def attention(q, k, v, causal):
    return flash_attn_func(q, k, v, causal=causal)


@functools.partial(jax.jit, static_argnums=3)
def reference(q, k, v, causal):
    """XLA's, with probabilities in float32."""
    return jax.nn.dot_product_attention(q, k, v, is_causal=causal, implementation="xla")


@workload(
    call=attention,
    reference=reference,
    tolerance=2e-2,
    cases=[
        *_cases(_FULL, False),
        *_cases(_CAUSAL, True),
        *_cases(_HELD_OUT, False, held_out=True),
        *_cases([(8, 16, 1024, 128)], True, held_out=True),
    ],
)
def training(B, H, S, D, causal, device):
    """q, k, v of (B, S, H, D)."""
    keys = jax.random.split(jax.random.key(0), 3)
    return *(jax.random.normal(key, (B, S, H, D), jnp.bfloat16) for key in keys), causal
