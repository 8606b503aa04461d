"""Which configuration tpu_forward.attention_tpu runs with on TPU7x.

Generated from measurements, which lie beside it. Read as data, never executed.
"""

SCHEMA = 1
KERNEL = "tpu_forward.attention_tpu"
DEVICE = {
    "name": "TPU7x",
    "arch": "tpu7x",
    "sm_count": 1,
    "memory": 103000000000,
    "shared_memory": 67108864,
}
TOOLS = {
    "jax": "0.10.2",
    "libtpu": "0.0.42",
    "python": "3.11.7",
}
SOURCE = "sha256:0cd9a209ea8a743cfd550a1c997b5e47c2b6982e20871659948661561d396379"
FEATURES = {
    "resident_bytes": "int",
}
CONFIGS = (
    {"strategy": "resident", "block_q": 512, "block_k": 512, "blocks": 4, "buffers": 2},  # 0
    {"strategy": "stream", "block_q": 512, "block_k": 512, "blocks": 4, "buffers": 2},  # 1
)


def choose(resident_bytes):
    if resident_bytes <= 66000000:
        return (0, 1)  # strategy=resident block_q=512 block_k=512 blocks=4 buffers=2
    else:
        return (1, 0)  # strategy=stream block_q=512 block_k=512 blocks=4 buffers=2
