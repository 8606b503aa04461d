"""Which configuration tpu_forward.attention_tpu runs with on TPU v4.

Generated from measurements, which lie beside it. Read as data, never executed.
"""

SCHEMA = 1
KERNEL = "tpu_forward.attention_tpu"
DEVICE = {
    "name": "TPU v4",
    "arch": "tpu4",
    "sm_count": 2,
    "memory": 34400000000,
    "shared_memory": 16777216,
}
TOOLS = {
    "jax": "0.10.2",
    "libtpu": "0.0.42",
    "python": "3.11.7",
}
SOURCE = "sha256:0cd9a209ea8a743cfd550a1c997b5e47c2b6982e20871659948661561d396379"
FEATURES = {
    "causal": "bool",
    "k_dim2": "int",
    "k_dim3": "int",
    "resident_bytes": "int",
}
CONFIGS = (
    {"strategy": "resident", "block_q": 512, "block_k": 256, "blocks": 4, "buffers": 2},  # 0
    {"strategy": "stream", "block_q": 1024, "block_k": 256, "blocks": 4, "buffers": 2},  # 1
    {"strategy": "stream", "block_q": 512, "block_k": 256, "blocks": 4, "buffers": 2},  # 2
)


def choose(causal, k_dim2, k_dim3, resident_bytes):
    if resident_bytes <= 14000000:
        return (0, 1, 2)  # strategy=resident block_q=512 block_k=256 blocks=4 buffers=2
    elif resident_bytes <= 1097 * k_dim2:
        if causal in (False,):
            return (1, 2, 0)  # strategy=stream block_q=1024 block_k=256 blocks=4 buffers=2
        else:
            return (2, 1, 0)  # strategy=stream block_q=512 block_k=256 blocks=4 buffers=2
    elif resident_bytes * k_dim3 <= 1190000000:
        return (0, 1, 2)  # strategy=resident block_q=512 block_k=256 blocks=4 buffers=2
    else:
        return (1, 2, 0)  # strategy=stream block_q=1024 block_k=256 blocks=4 buffers=2
