"""Which configuration tpu_forward.attention_tpu runs with on TPU v5e.

Generated from measurements, which lie beside it. Read as data, never executed.
"""

SCHEMA = 1
KERNEL = "tpu_forward.attention_tpu"
DEVICE = {
    "name": "TPU v5e",
    "arch": "tpu5e",
    "sm_count": 1,
    "memory": 17200000000,
    "shared_memory": 134217728,
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
    {"strategy": "resident", "block_q": 512, "block_k": 256, "blocks": 4, "buffers": 2},  # 0
    {"strategy": "stream", "block_q": 512, "block_k": 256, "blocks": 4, "buffers": 2},  # 1
)


def choose(resident_bytes):
    if resident_bytes <= 130000000:
        return (0, 1)  # strategy=resident block_q=512 block_k=256 blocks=4 buffers=2
    else:
        return (1, 0)  # strategy=stream block_q=512 block_k=256 blocks=4 buffers=2
