"""What `tiled` is tuned for; the largest of these needs 64 GiB."""

import jax.numpy as jnp
from tiled import scale

from kernel_builder.tuning import Case, workload
from kernel_builder.tuning.tpu.work import Tile, Work


def tiled_work(arguments, config):
    """Rows come and go once; nothing is computed twice."""
    (m, n), block = arguments["x"].shape, min(config["block_m"], arguments["x"].shape[0])
    turns = -(-m // block)
    return Work(
        group="wrong" if config["wrong"] else "right",
        program=(block, n, turns > 1, config["wrong"]),
        vmem=4 * Tile(4).bytes(block, n) + 2 * Tile(4).bytes(1, n),
        vector_ops=2 * m * n,
        hbm_bytes=8 * m * n,
        programs=turns,
        turns=turns,
    )


@workload(
    call=scale,
    work={"tiled": tiled_work},
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
