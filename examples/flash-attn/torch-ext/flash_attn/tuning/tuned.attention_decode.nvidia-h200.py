"""Which configuration tuned.attention_decode runs with on NVIDIA H200.

Generated from measurements, which lie beside it. Read as data, never executed.
"""

SCHEMA = 1
KERNEL = "tuned.attention_decode"
DEVICE = {
    "name": "NVIDIA H200",
    "arch": "sm_90",
    "sm_count": 132,
    "memory": 150109880320,
    "shared_memory": 232448,
}
TOOLS = {
    "driver": "580.159.04",
    "jax": "0.11.2",
    "python": "3.12.3",
    "runtime": "13.0",
    "torch": "2.11.0+cu130",
    "triton": "3.6.0",
}
SOURCE = "sha256:a5a38aa0e698cd16acfdf72cefa325dcc463cb0c9bebd7cacf47b6b4f1c1ff52"
FEATURES = {
    "k_dim1": "int",
}
CONFIGS = (
    {"block_n": 64, "num_warps": 4, "num_stages": 3, "waves": 2},  # 0
    {"block_n": 128, "num_warps": 4, "num_stages": 3, "waves": 1},  # 1
)


def choose(k_dim1):
    if k_dim1 <= 5800:
        return (0, 1)  # block_n=64 num_warps=4 num_stages=3 waves=2
    else:
        return (1, 0)  # block_n=128 num_warps=4 num_stages=3 waves=1
