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
SOURCE = "sha256:4a3e74c5cb30fc71a562c2033fe67dbaa27b01e98c04b9b783154d160c248215"
FEATURES = {
    "k_dim0": "int",
    "k_dim1": "int",
}
CONFIGS = (
    {"block_n": 32, "num_warps": 4, "num_stages": 4, "waves": 4},  # 0
    {"block_n": 128, "num_warps": 4, "num_stages": 2, "waves": 2},  # 1
    {"block_n": 64, "num_warps": 4, "num_stages": 3, "waves": 2},  # 2
    {"block_n": 128, "num_warps": 4, "num_stages": 3, "waves": 1},  # 3
)


def choose(k_dim0, k_dim1):
    if k_dim1 <= 5800:
        if k_dim0 <= 4:
            return (0, 2, 1, 3)  # block_n=32 num_warps=4 num_stages=4 waves=4
        elif k_dim0 <= 23:
            return (1, 2, 3, 0)  # block_n=128 num_warps=4 num_stages=2 waves=2
        else:
            return (2, 1, 3, 0)  # block_n=64 num_warps=4 num_stages=3 waves=2
    else:
        return (3, 1, 2, 0)  # block_n=128 num_warps=4 num_stages=3 waves=1
