"""Which configuration kernels.rms_norm_backward runs with on NVIDIA H200.

Generated from measurements, which lie beside it. Read as data, never executed.
"""

SCHEMA = 1
KERNEL = "kernels.rms_norm_backward"
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
SOURCE = "sha256:970bc06336fa1eb38f6c08bd4777be86df8d0e230113f43aefa31ad535444bf0"
FEATURES = {
    "M": "int",
    "N": "int",
    "dw_ptr_dim0": "int",
    "dx_ptr_dtype": "str",
}
CONFIGS = (
    {"BLOCK_M": 1, "BLOCK_N": 1024, "num_warps": 8, "num_ctas": 1, "num_stages": 3},  # 0
    {"BLOCK_M": 4, "BLOCK_N": 1024, "num_warps": 2, "num_ctas": 1, "num_stages": 3},  # 1
    {"BLOCK_M": 4, "BLOCK_N": 2048, "num_warps": 4, "num_ctas": 1, "num_stages": 3},  # 2
    {"BLOCK_M": 1, "BLOCK_N": 2048, "num_warps": 16, "num_ctas": 1, "num_stages": 3},  # 3
    {"BLOCK_M": 1, "BLOCK_N": 4096, "num_warps": 16, "num_ctas": 1, "num_stages": 3},  # 4
    {"BLOCK_M": 1, "BLOCK_N": 8192, "num_warps": 16, "num_ctas": 1, "num_stages": 3},  # 5
    {"BLOCK_M": 2, "BLOCK_N": 8192, "num_warps": 16, "num_ctas": 1, "num_stages": 3},  # 6
    {"BLOCK_M": 1, "BLOCK_N": 16384, "num_warps": 8, "num_ctas": 1, "num_stages": 3},  # 7
)


def choose(M, N, dw_ptr_dim0, dx_ptr_dtype):
    if N <= 4096:
        if N <= 4.4 * dw_ptr_dim0:
            if N <= 1024:
                if M <= 1400:
                    return (0, 6, 5, 4, 7, 2, 3, 1)  # BLOCK_M=1 BLOCK_N=1024 num_warps=8 num_ctas=1 num_stages=3
                else:
                    return (1, 6, 5, 7, 4, 2, 3, 0)  # BLOCK_M=4 BLOCK_N=1024 num_warps=2 num_ctas=1 num_stages=3
            else:
                return (2, 6, 5, 4, 7, 3, 1, 0)  # BLOCK_M=4 BLOCK_N=2048 num_warps=4 num_ctas=1 num_stages=3
        elif N <= 2048:
            if N <= 1024:
                return (0, 5, 7, 4, 3, 6, 2, 1)  # BLOCK_M=1 BLOCK_N=1024 num_warps=8 num_ctas=1 num_stages=3
            else:
                return (3, 5, 4, 7, 6, 0, 2, 1)  # BLOCK_M=1 BLOCK_N=2048 num_warps=16 num_ctas=1 num_stages=3
        else:
            return (4, 5, 7, 6, 3, 0, 2, 1)  # BLOCK_M=1 BLOCK_N=4096 num_warps=16 num_ctas=1 num_stages=3
    elif M <= 180:
        if N <= 8192:
            return (5, 7, 6, 4, 3, 0, 2, 1)  # BLOCK_M=1 BLOCK_N=8192 num_warps=16 num_ctas=1 num_stages=3
        else:
            return (3, 7, 5, 4, 0, 6, 2, 1)  # BLOCK_M=1 BLOCK_N=2048 num_warps=16 num_ctas=1 num_stages=3
    elif N * dw_ptr_dim0 <= 4800000:
        if dx_ptr_dtype in ("bfloat16",):
            return (6, 5, 7, 4, 3, 2, 0, 1)  # BLOCK_M=2 BLOCK_N=8192 num_warps=16 num_ctas=1 num_stages=3
        else:
            return (5, 6, 4, 7, 3, 2, 0, 1)  # BLOCK_M=1 BLOCK_N=8192 num_warps=16 num_ctas=1 num_stages=3
    else:
        return (7, 6, 5, 4, 2, 3, 1, 0)  # BLOCK_M=1 BLOCK_N=16384 num_warps=8 num_ctas=1 num_stages=3
