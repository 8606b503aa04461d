"""Which configuration tuned.attention_fwd runs with on NVIDIA H200.

Generated from measurements, which lie beside it. Read as data, never executed.
"""

SCHEMA = 1
KERNEL = "tuned.attention_fwd"
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
SOURCE = "sha256:916f82c9c555add53cf576025fe8e2cfa93cdfae989f3874884fdfb6cd885b57"
FEATURES = {
    "causal": "bool",
    "k_dim1": "int",
    "k_dim3": "int",
}
CONFIGS = (
    {"implementation": "triton", "block_m": 64, "block_n": 64, "num_warps": 4, "num_stages": 3, "consumers": 0, "persistent": False, "ahead": False},  # 0
    {"implementation": "triton", "block_m": 128, "block_n": 64, "num_warps": 4, "num_stages": 3, "consumers": 0, "persistent": False, "ahead": False},  # 1
    {"implementation": "hopper", "block_m": 64, "block_n": 64, "num_warps": 4, "num_stages": 2, "consumers": 1, "persistent": True, "ahead": False},  # 2
    {"implementation": "hopper", "block_m": 64, "block_n": 128, "num_warps": 4, "num_stages": 2, "consumers": 1, "persistent": True, "ahead": False},  # 3
    {"implementation": "hopper", "block_m": 128, "block_n": 128, "num_warps": 8, "num_stages": 2, "consumers": 2, "persistent": True, "ahead": False},  # 4
    {"implementation": "hopper", "block_m": 128, "block_n": 64, "num_warps": 8, "num_stages": 2, "consumers": 2, "persistent": True, "ahead": False},  # 5
)


def choose(causal, k_dim1, k_dim3):
    if k_dim3 <= 78:
        if k_dim1 <= 180:
            return (0, 1, 2, 3, 5, 4)  # implementation=triton block_m=64 block_n=64 num_warps=4 num_stages=3 consumers=0 persistent=False ahead=False
        elif k_dim1 <= 360:
            if causal in (False,):
                return (1, 3, 0, 2, 5, 4)  # implementation=triton block_m=128 block_n=64 num_warps=4 num_stages=3 consumers=0 persistent=False ahead=False
            else:
                return (2, 3, 1, 5, 0, 4)  # implementation=hopper block_m=64 block_n=64 num_warps=4 num_stages=2 consumers=1 persistent=True ahead=False
        else:
            return (3, 2, 0, 4, 1, 5)  # implementation=hopper block_m=64 block_n=128 num_warps=4 num_stages=2 consumers=1 persistent=True ahead=False
    elif k_dim3 <= 180:
        if causal in (False,):
            return (4, 2, 5, 0, 1, 3)  # implementation=hopper block_m=128 block_n=128 num_warps=8 num_stages=2 consumers=2 persistent=True ahead=False
        elif k_dim1 <= 1400:
            return (2, 5, 4, 0, 1, 3)  # implementation=hopper block_m=64 block_n=64 num_warps=4 num_stages=2 consumers=1 persistent=True ahead=False
        else:
            return (4, 2, 5, 0, 1, 3)  # implementation=hopper block_m=128 block_n=128 num_warps=8 num_stages=2 consumers=2 persistent=True ahead=False
    else:
        return (5, 0, 4, 2, 1, 3)  # implementation=hopper block_m=128 block_n=64 num_warps=8 num_stages=2 consumers=2 persistent=True ahead=False
