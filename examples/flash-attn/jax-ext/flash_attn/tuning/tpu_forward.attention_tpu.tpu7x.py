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
SOURCE = "sha256:cd82f9c5d1c219bd3334e78e6c37ecf06d27ae4d3e4bc037da24015665602747"
FEATURES = {
    "k_dim2": "int",
}
CONFIGS = (
    {"strategy": "resident", "block_q": 128, "block_k": 1024, "buffers": 2},  # 0
    {"strategy": "stream", "block_q": 512, "block_k": 512, "buffers": 2},  # 1
)


def choose(k_dim2):
    return (0, 1)  # strategy=resident block_q=128 block_k=1024 buffers=2
