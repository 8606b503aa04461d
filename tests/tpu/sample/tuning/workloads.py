"""What `tiled` is tuned for; the largest of these needs 64 GiB."""

import jax.numpy as jnp
from tiled import scale

from kernel_builder.tuning import Case, workload


@workload(
    call=scale,
    reference=lambda x, w: x * w + 1,
    cases=[
        Case(M=64, N=256),
        Case(M=4096, N=1024, weight=2),
        Case(M=4096, N=8192),
        Case(M=1 << 20, N=16384, held_out=True),
    ],
)
def forward(M, N, device):
    return jnp.ones((M, N), jnp.float32), jnp.full((N,), 2.0, jnp.float32)
