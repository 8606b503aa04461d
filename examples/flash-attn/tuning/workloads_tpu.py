"""What attention is tuned for on TPUs: training and prefill, up to and past what a VMEM holds.

The public functions move the heads of one layout to the front of the other, which is not the
kernel's work; the cases call the kernel.
"""

import functools
import math

import jax
import jax.numpy as jnp
from flash_attn.tpu_forward import attention_tpu

from kernel_builder.tuning import Case, workload
from kernel_builder.tuning.tpu.work import Product, Tile, Work

_WIDE = Tile(4)

# A head's K and V in bfloat16 fill 16 MiB at 8k x 256, 64 MiB at 32k x 256, 128 MiB at 64k x 256.
_LENGTHS = (2048, 4096, 8192, 14336, 16384, 28672, 32768, 49152, 57344, 65536)
_HELD_OUT = {
    64: (3072, 7168, 12288, 24576),
    128: (3072, 7168, 12288, 24576),
    256: (3072, 12288, 24576),
}
# At 6144 a head of 256 still fits 16 MiB, at 7168 the compiler refuses what the kernel does not.
_EDGE = {64: (), 128: (), 256: (6144, 7168)}
_CASES = [
    Case(B=2, H=4, S=length, D=dim, causal=causal, held_out=length in _HELD_OUT[dim])
    for dim, causal in ((64, False), (128, False), (128, True), (256, False), (256, True))
    for length in sorted((*_LENGTHS, *_HELD_OUT[dim], *_EDGE[dim]))
]


def attention_work(arguments, config):
    """One forward launch."""
    q, k = arguments["q"], arguments["k"]
    batch, heads, queries, dim = q.shape
    kv_heads, keys = k.shape[1:3]
    tile = Tile(q.dtype.itemsize)
    block_q, block_k = (
        min(config[name], math.ceil(length / 128) * 128)
        for name, length in (("block_q", queries), ("block_k", keys))
    )
    blocks = min(config["blocks"], math.ceil(keys / block_k))
    window = blocks * block_k
    rows, windows = math.ceil(queries / block_q), math.ceil(keys / window)
    seen = [windows] * rows
    if arguments["causal"]:
        shift = keys - queries
        last = [(row + 1) * block_q + shift for row in range(rows)]
        seen = [min(windows, max(1, math.ceil(key / window))) for key in last]
    turns = batch * heads * sum(seen)
    steps = turns * blocks
    programs = batch * heads * rows
    resident = config["strategy"] == "resident"
    straight = not arguments["causal"] and keys % window == 0
    kv = 2 * config["buffers"] * tile.bytes(windows * window if resident else window, dim)
    of_window = 2 * window * dim * q.dtype.itemsize
    moved = batch * kv_heads * windows * of_window if resident else turns * of_window
    return Work(
        group=config["strategy"],
        program=(
            config["strategy"], block_q, block_k, blocks, config["buffers"], dim, q.dtype.name,
            arguments["causal"], straight, windows > 1, rows > 1, batch * kv_heads > 1,
        ),
        vmem=(
            kv + 4 * tile.bytes(block_q, dim) + 4 * _WIDE.bytes(1, block_q)
            + _WIDE.bytes(dim, block_q) + min(blocks, 2) * _WIDE.bytes(block_k, block_q)
        ),
        unrolled=block_q * window * (1 if straight else 2),
        products=(
            Product(block_k, dim, block_q, steps),
            Product(dim, block_k, block_q, steps),
        ),
        # Of a score: scaled, compared, subtracted, summed and packed; of a sum: scaled and added,
        # and loaded and stored, of which fewer go into a cycle.
        vector_ops=steps * block_q * (4.5 * block_k + 5 * dim),
        exponentials=steps * block_q * block_k,
        hbm_bytes=2 * batch * heads * queries * dim * q.dtype.itemsize + moved,
        programs=programs,
        turns=turns,
        pieces=blocks,
        copies=1 if straight else 2,
        stalls=1 if resident else programs,
        stall_bytes=windows * of_window if resident else of_window,
    )  # fmt: skip


def attention(q, k, v, causal):
    """The kernel, on what shape it takes."""
    return attention_tpu(q, k, v, causal=causal, scale=q.shape[3] ** -0.5)


@workload(
    call=attention,
    reference=lambda q, k, v, causal: jax.nn.dot_product_attention(
        *(x.swapaxes(1, 2) for x in (q, k, v)), is_causal=causal
    ).swapaxes(1, 2),
    tolerance=2e-2,
    cases=_CASES,
    work={"tpu_forward.attention_tpu": attention_work},
)
def forward(B, H, S, D, causal, device):
    keys = jax.random.split(jax.random.key(0), 3)
    make = functools.partial(jax.random.normal, shape=(B, H, S, D), dtype=jnp.bfloat16)
    return {"q": make(keys[0]), "k": make(keys[1]), "v": make(keys[2]), "causal": causal}
