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
SOURCE = "sha256:e64c3f01f6bc16f4424e203e40ce88f538999bb69050a08dc7ffad19c0131e5d"
FEATURES = {
    "causal": "bool",
    "k_dim0": "int",
    "k_dim1": "int",
    "k_dim2": "int",
    "k_dim3": "int",
}
CONFIGS = (
    {"implementation": "hopper", "block_m": 64, "block_n": 128, "num_warps": 4, "num_stages": 2, "consumers": 1, "persistent": False},  # 0
    {"implementation": "hopper", "block_m": 128, "block_n": 64, "num_warps": 8, "num_stages": 2, "consumers": 2, "persistent": True},  # 1
    {"implementation": "hopper", "block_m": 128, "block_n": 128, "num_warps": 8, "num_stages": 2, "consumers": 2, "persistent": True},  # 2
    {"implementation": "triton", "block_m": 64, "block_n": 64, "num_warps": 4, "num_stages": 3, "consumers": 0, "persistent": False},  # 3
    {"implementation": "triton", "block_m": 128, "block_n": 64, "num_warps": 4, "num_stages": 3, "consumers": 0, "persistent": False},  # 4
    {"implementation": "hopper", "block_m": 64, "block_n": 64, "num_warps": 4, "num_stages": 2, "consumers": 1, "persistent": True},  # 5
    {"implementation": "hopper", "block_m": 64, "block_n": 128, "num_warps": 4, "num_stages": 2, "consumers": 1, "persistent": True},  # 6
    {"implementation": "hopper", "block_m": 64, "block_n": 64, "num_warps": 4, "num_stages": 2, "consumers": 1, "persistent": False},  # 7
)


def choose(causal, k_dim0, k_dim1, k_dim2, k_dim3):
    if k_dim0 <= 1.4:
        if k_dim3 <= 91:
            return (0, 6, 5, 7, 3, 2, 4, 1)  # implementation=hopper block_m=64 block_n=128 num_warps=4 num_stages=2 consumers=1 persistent=False
        elif k_dim1 <= 4300:
            return (1, 3, 2, 5, 7, 4, 0, 6)  # implementation=hopper block_m=128 block_n=64 num_warps=8 num_stages=2 consumers=2 persistent=True
        else:
            return (2, 5, 1, 7, 3, 4, 0, 6)  # implementation=hopper block_m=128 block_n=128 num_warps=8 num_stages=2 consumers=2 persistent=True
    elif k_dim3 <= 78:
        if k_dim2 * k_dim3 <= 720:
            return (3, 5, 7, 4, 0, 6, 2, 1)  # implementation=triton block_m=64 block_n=64 num_warps=4 num_stages=3 consumers=0 persistent=False
        elif k_dim1 <= 1400:
            if causal in (False,):
                if k_dim0 * k_dim1 <= 2900:
                    return (4, 6, 5, 3, 0, 2, 1, 7)  # implementation=triton block_m=128 block_n=64 num_warps=4 num_stages=3 consumers=0 persistent=False
                else:
                    return (2, 6, 5, 3, 4, 0, 1, 7)  # implementation=hopper block_m=128 block_n=128 num_warps=8 num_stages=2 consumers=2 persistent=True
            else:
                return (5, 7, 0, 6, 1, 2, 3, 4)  # implementation=hopper block_m=64 block_n=64 num_warps=4 num_stages=2 consumers=1 persistent=True
        elif causal in (False,):
            return (2, 6, 0, 3, 5, 4, 7, 1)  # implementation=hopper block_m=128 block_n=128 num_warps=8 num_stages=2 consumers=2 persistent=True
        else:
            return (6, 2, 0, 5, 7, 1, 3, 4)  # implementation=hopper block_m=64 block_n=128 num_warps=4 num_stages=2 consumers=1 persistent=True
    elif k_dim1 <= 1400:
        return (1, 3, 5, 2, 7, 4, 6, 0)  # implementation=hopper block_m=128 block_n=64 num_warps=8 num_stages=2 consumers=2 persistent=True
    else:
        return (2, 1, 5, 7, 3, 4, 6, 0)  # implementation=hopper block_m=128 block_n=128 num_warps=8 num_stages=2 consumers=2 persistent=True
