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
    "k_dim3": "int",
    "resident_bytes": "int",
}
CONFIGS = (
    {"strategy": "resident", "block_q": 512, "block_k": 256, "blocks": 4, "buffers": 2},  # 0
    {"strategy": "stream", "block_q": 1024, "block_k": 256, "blocks": 4, "buffers": 2},  # 1
    {"strategy": "stream", "block_q": 512, "block_k": 256, "blocks": 4, "buffers": 2},  # 2
)


def choose(causal, k_dim3, resident_bytes):
    if resident_bytes <= 14000000:
        return (0, 1, 2)  # strategy=resident block_q=512 block_k=256 blocks=4 buffers=2
    elif resident_bytes <= 17000000:
        if causal in (False,):
            return (0, 1, 2)  # strategy=resident block_q=512 block_k=256 blocks=4 buffers=2
        else:
            return (1, 2, 0)  # strategy=stream block_q=1024 block_k=256 blocks=4 buffers=2
    elif resident_bytes <= 17560000:
        return (0, 1, 2)  # strategy=resident block_q=512 block_k=256 blocks=4 buffers=2
    elif resident_bytes <= 62000000:
        if resident_bytes <= 53220000:
            return (1, 2, 0)  # strategy=stream block_q=1024 block_k=256 blocks=4 buffers=2
        elif causal in (False,):
            return (1, 2, 0)  # strategy=stream block_q=1024 block_k=256 blocks=4 buffers=2
        else:
            return (2, 1, 0)  # strategy=stream block_q=512 block_k=256 blocks=4 buffers=2
    elif k_dim3 <= 180:
        if causal in (False,):
            return (1, 2, 0)  # strategy=stream block_q=1024 block_k=256 blocks=4 buffers=2
        else:
            return (2, 1, 0)  # strategy=stream block_q=512 block_k=256 blocks=4 buffers=2
    else:
        return (1, 2, 0)  # strategy=stream block_q=1024 block_k=256 blocks=4 buffers=2
