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
SOURCE = "sha256:cd82f9c5d1c219bd3334e78e6c37ecf06d27ae4d3e4bc037da24015665602747"
FEATURES = {
    "k_dim2": "int",
    "k_dim3": "int",
}
CONFIGS = (
    {"strategy": "resident", "block_q": 256, "block_k": 512, "buffers": 2},  # 0
    {"strategy": "stream", "block_q": 1024, "block_k": 256, "buffers": 2},  # 1
)


def choose(k_dim2, k_dim3):
    if k_dim2 * k_dim3 <= 1700000:
        return (0, 1)  # strategy=resident block_q=256 block_k=512 buffers=2
    else:
        return (1, 0)  # strategy=stream block_q=1024 block_k=256 buffers=2
