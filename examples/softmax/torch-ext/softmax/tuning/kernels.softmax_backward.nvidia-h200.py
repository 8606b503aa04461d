"""Which configuration kernels.softmax_backward runs with on NVIDIA H200.

Generated from measurements, which lie beside it. Read as data, never executed.
"""

SCHEMA = 1
KERNEL = "kernels.softmax_backward"
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
SOURCE = "sha256:16175de971378cdb5610495d6f44072ea798d635c8fb3bec9d2d244e3996d8c5"
FEATURES = {
    "M": "int",
    "N": "int",
    "dx_ptr_dtype": "str",
}
CONFIGS = (
    {"BLOCK_M": 8, "BLOCK_N": 128, "num_warps": 4, "num_ctas": 1, "num_stages": 3},  # 0
    {"BLOCK_M": 4, "BLOCK_N": 256, "num_warps": 4, "num_ctas": 1, "num_stages": 3},  # 1
    {"BLOCK_M": 2, "BLOCK_N": 512, "num_warps": 4, "num_ctas": 1, "num_stages": 3},  # 2
    {"BLOCK_M": 2, "BLOCK_N": 1024, "num_warps": 8, "num_ctas": 1, "num_stages": 3},  # 3
    {"BLOCK_M": 1, "BLOCK_N": 2048, "num_warps": 8, "num_ctas": 1, "num_stages": 3},  # 4
    {"BLOCK_M": 1, "BLOCK_N": 4096, "num_warps": 8, "num_ctas": 1, "num_stages": 3},  # 5
    {"BLOCK_M": 1, "BLOCK_N": 8192, "num_warps": 16, "num_ctas": 1, "num_stages": 3},  # 6
    {"BLOCK_M": 1, "BLOCK_N": 16384, "num_warps": 16, "num_ctas": 1, "num_stages": 3},  # 7
)


def choose(M, N, dx_ptr_dtype):
    if N <= 1024:
        if N <= 128:
            return (0, 3, 5, 4, 6, 7, 2, 1)  # BLOCK_M=8 BLOCK_N=128 num_warps=4 num_ctas=1 num_stages=3
        elif N <= 256:
            return (1, 3, 5, 4, 6, 7, 2, 0)  # BLOCK_M=4 BLOCK_N=256 num_warps=4 num_ctas=1 num_stages=3
        elif N <= 512:
            if M <= 8200:
                return (2, 4, 6, 5, 7, 3, 1, 0)  # BLOCK_M=2 BLOCK_N=512 num_warps=4 num_ctas=1 num_stages=3
            else:
                return (3, 4, 5, 6, 7, 0, 2, 1)  # BLOCK_M=2 BLOCK_N=1024 num_warps=8 num_ctas=1 num_stages=3
        elif dx_ptr_dtype in ("bfloat16",):
            return (3, 5, 4, 6, 7, 2, 1, 0)  # BLOCK_M=2 BLOCK_N=1024 num_warps=8 num_ctas=1 num_stages=3
        else:
            return (4, 3, 2, 6, 7, 5, 1, 0)  # BLOCK_M=1 BLOCK_N=2048 num_warps=8 num_ctas=1 num_stages=3
    elif N <= 2048:
        return (4, 6, 5, 7, 3, 2, 1, 0)  # BLOCK_M=1 BLOCK_N=2048 num_warps=8 num_ctas=1 num_stages=3
    elif N <= 4096:
        return (5, 6, 7, 4, 3, 2, 1, 0)  # BLOCK_M=1 BLOCK_N=4096 num_warps=8 num_ctas=1 num_stages=3
    elif M * N <= 21000000:
        if N <= 57000:
            return (6, 7, 5, 4, 3, 2, 1, 0)  # BLOCK_M=1 BLOCK_N=8192 num_warps=16 num_ctas=1 num_stages=3
        else:
            return (7, 6, 5, 4, 3, 2, 1, 0)  # BLOCK_M=1 BLOCK_N=16384 num_warps=16 num_ctas=1 num_stages=3
    else:
        return (7, 6, 4, 5, 3, 2, 1, 0)  # BLOCK_M=1 BLOCK_N=16384 num_warps=16 num_ctas=1 num_stages=3
