"""Which configuration kernels.softmax_forward runs with on NVIDIA H200.

Generated from measurements, which lie beside it. Read as data, never executed.
"""

SCHEMA = 1
KERNEL = "kernels.softmax_forward"
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
SOURCE = "sha256:867f2c6363d6a82ce3d0fe30b3b25cfdceab1b28ce14cbf067c4ccbee4c8a09b"
FEATURES = {
    "N": "int",
}
CONFIGS = (
    {"BLOCK_M": 4, "BLOCK_N": 128, "num_warps": 4, "num_ctas": 1, "num_stages": 3},  # 0
    {"BLOCK_M": 4, "BLOCK_N": 256, "num_warps": 4, "num_ctas": 1, "num_stages": 3},  # 1
    {"BLOCK_M": 1, "BLOCK_N": 1024, "num_warps": 4, "num_ctas": 1, "num_stages": 3},  # 2
    {"BLOCK_M": 1, "BLOCK_N": 4096, "num_warps": 4, "num_ctas": 1, "num_stages": 3},  # 3
    {"BLOCK_M": 1, "BLOCK_N": 16384, "num_warps": 8, "num_ctas": 1, "num_stages": 3},  # 4
    {"BLOCK_M": 1, "BLOCK_N": 4096, "num_warps": 16, "num_ctas": 1, "num_stages": 3},  # 5
)


def choose(N):
    if N <= 1800:
        if N <= 510:
            if N <= 128:
                return (0, 1, 2, 3, 5, 4)  # BLOCK_M=4 BLOCK_N=128 num_warps=4 num_ctas=1 num_stages=3
            else:
                return (1, 0, 2, 3, 5, 4)  # BLOCK_M=4 BLOCK_N=256 num_warps=4 num_ctas=1 num_stages=3
        else:
            return (2, 1, 0, 3, 5, 4)  # BLOCK_M=1 BLOCK_N=1024 num_warps=4 num_ctas=1 num_stages=3
    elif N <= 4096:
        return (3, 5, 2, 1, 0, 4)  # BLOCK_M=1 BLOCK_N=4096 num_warps=4 num_ctas=1 num_stages=3
    else:
        return (4, 3, 5, 2, 1, 0)  # BLOCK_M=1 BLOCK_N=16384 num_warps=8 num_ctas=1 num_stages=3
