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
    "M": "int",
    "N": "int",
    "x_ptr_dtype": "str",
}
CONFIGS = (
    {"BLOCK_M": 8, "BLOCK_N": 128, "num_warps": 4, "num_ctas": 1, "num_stages": 3},  # 0
    {"BLOCK_M": 4, "BLOCK_N": 256, "num_warps": 4, "num_ctas": 1, "num_stages": 3},  # 1
    {"BLOCK_M": 1, "BLOCK_N": 4096, "num_warps": 4, "num_ctas": 1, "num_stages": 3},  # 2
    {"BLOCK_M": 1, "BLOCK_N": 16384, "num_warps": 16, "num_ctas": 1, "num_stages": 3},  # 3
    {"BLOCK_M": 2, "BLOCK_N": 512, "num_warps": 1, "num_ctas": 1, "num_stages": 3},  # 4
    {"BLOCK_M": 1, "BLOCK_N": 2048, "num_warps": 2, "num_ctas": 1, "num_stages": 3},  # 5
    {"BLOCK_M": 1, "BLOCK_N": 8192, "num_warps": 8, "num_ctas": 1, "num_stages": 3},  # 6
    {"BLOCK_M": 1, "BLOCK_N": 1024, "num_warps": 2, "num_ctas": 1, "num_stages": 3},  # 7
)


def choose(M, N, x_ptr_dtype):
    if M <= 91:
        if N <= 4096:
            if N <= 128:
                return (0, 2, 6, 3, 5, 1, 4, 7)  # BLOCK_M=8 BLOCK_N=128 num_warps=4 num_ctas=1 num_stages=3
            elif N <= 256:
                return (1, 2, 6, 3, 5, 4, 0, 7)  # BLOCK_M=4 BLOCK_N=256 num_warps=4 num_ctas=1 num_stages=3
            else:
                return (2, 6, 3, 5, 7, 4, 1, 0)  # BLOCK_M=1 BLOCK_N=4096 num_warps=4 num_ctas=1 num_stages=3
        else:
            return (3, 6, 2, 5, 7, 4, 1, 0)  # BLOCK_M=1 BLOCK_N=16384 num_warps=16 num_ctas=1 num_stages=3
    elif N <= 512:
        if N <= 128:
            return (0, 2, 6, 3, 5, 4, 1, 7)  # BLOCK_M=8 BLOCK_N=128 num_warps=4 num_ctas=1 num_stages=3
        elif N <= 256:
            return (1, 2, 6, 3, 5, 4, 0, 7)  # BLOCK_M=4 BLOCK_N=256 num_warps=4 num_ctas=1 num_stages=3
        else:
            return (4, 6, 5, 3, 2, 1, 0, 7)  # BLOCK_M=2 BLOCK_N=512 num_warps=1 num_ctas=1 num_stages=3
    elif N <= 1024:
        return (2, 6, 3, 5, 7, 4, 1, 0)  # BLOCK_M=1 BLOCK_N=4096 num_warps=4 num_ctas=1 num_stages=3
    elif N <= 2048:
        if x_ptr_dtype in ("bfloat16",):
            return (5, 6, 2, 3, 7, 4, 1, 0)  # BLOCK_M=1 BLOCK_N=2048 num_warps=2 num_ctas=1 num_stages=3
        else:
            return (5, 7, 2, 6, 3, 4, 1, 0)  # BLOCK_M=1 BLOCK_N=2048 num_warps=2 num_ctas=1 num_stages=3
    elif N <= 4096:
        return (2, 6, 3, 5, 7, 4, 1, 0)  # BLOCK_M=1 BLOCK_N=4096 num_warps=4 num_ctas=1 num_stages=3
    elif N <= 57000:
        if M <= 2900:
            return (6, 3, 2, 5, 4, 7, 1, 0)  # BLOCK_M=1 BLOCK_N=8192 num_warps=8 num_ctas=1 num_stages=3
        else:
            return (3, 6, 2, 5, 4, 1, 0, 7)  # BLOCK_M=1 BLOCK_N=16384 num_warps=16 num_ctas=1 num_stages=3
    elif M <= 510:
        return (3, 6, 2, 5, 7, 4, 1, 0)  # BLOCK_M=1 BLOCK_N=16384 num_warps=16 num_ctas=1 num_stages=3
    else:
        return (6, 3, 2, 5, 4, 1, 7, 0)  # BLOCK_M=1 BLOCK_N=8192 num_warps=8 num_ctas=1 num_stages=3
