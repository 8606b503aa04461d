"""Which configuration tpu_forward.attention_tpu runs with on TPU v5p.

Generated from measurements, which lie beside it. Read as data, never executed.
"""

SCHEMA = 1
KERNEL = "tpu_forward.attention_tpu"
DEVICE = {
    "name": "TPU v5p",
    "arch": "tpu5p",
    "sm_count": 2,
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
    "causal": "bool",
    "k_dim2": "int",
    "k_dim3": "int",
}
CONFIGS = (
    {"strategy": "resident", "block_q": 512, "block_k": 256, "blocks": 4, "buffers": 2},  # 0
    {"strategy": "stream", "block_q": 512, "block_k": 256, "blocks": 4, "buffers": 2},  # 1
    {"strategy": "stream", "block_q": 1024, "block_k": 256, "blocks": 4, "buffers": 2},  # 2
    {"strategy": "resident", "block_q": 1024, "block_k": 256, "blocks": 4, "buffers": 2},  # 3
)


def choose(causal, k_dim2, k_dim3):
    if k_dim2 * k_dim3 <= 7800000:
        if k_dim2 <= 61000:
            return (0, 2, 1, 3)  # strategy=resident block_q=512 block_k=256 blocks=4 buffers=2
        else:
            return (1, 0, 2, 3)  # strategy=stream block_q=512 block_k=256 blocks=4 buffers=2
    elif causal in (False,):
        return (1, 2, 0, 3)  # strategy=stream block_q=512 block_k=256 blocks=4 buffers=2
    else:
        return (2, 1, 0, 3)  # strategy=stream block_q=1024 block_k=256 blocks=4 buffers=2
