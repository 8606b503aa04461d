"""Which configuration kernels.rms_norm_forward runs with on NVIDIA H200.

Generated from measurements, which lie beside it. Read as data, never executed.
"""

SCHEMA = 1
KERNEL = "kernels.rms_norm_forward"
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
SOURCE = "sha256:1434bb9258be9ea278bd231bb41c34962bf928ab35460b51040360b354196cef"
FEATURES = {
    "M": "int",
    "N": "int",
}
CONFIGS = (
    {"BLOCK_M": 1, "BLOCK_N": 1024, "num_warps": 4, "num_ctas": 1, "num_stages": 3},  # 0
    {"BLOCK_M": 4, "BLOCK_N": 1024, "num_warps": 4, "num_ctas": 1, "num_stages": 3},  # 1
    {"BLOCK_M": 1, "BLOCK_N": 2048, "num_warps": 4, "num_ctas": 1, "num_stages": 3},  # 2
    {"BLOCK_M": 1, "BLOCK_N": 4096, "num_warps": 4, "num_ctas": 1, "num_stages": 3},  # 3
    {"BLOCK_M": 1, "BLOCK_N": 8192, "num_warps": 8, "num_ctas": 1, "num_stages": 3},  # 4
    {"BLOCK_M": 1, "BLOCK_N": 16384, "num_warps": 8, "num_ctas": 1, "num_stages": 3},  # 5
    {"BLOCK_M": 1, "BLOCK_N": 4096, "num_warps": 16, "num_ctas": 1, "num_stages": 3},  # 6
    {"BLOCK_M": 8, "BLOCK_N": 256, "num_warps": 2, "num_ctas": 1, "num_stages": 3},  # 7
)


def choose(M, N):
    if N <= 8192:
        if N <= 4096:
            if N <= 2048:
                if N <= 1024:
                    if M <= 1400:
                        return (0, 4, 5, 6, 3, 2, 1, 7)  # BLOCK_M=1 BLOCK_N=1024 num_warps=4 num_ctas=1 num_stages=3
                    elif M <= 12000:
                        return (1, 3, 2, 4, 5, 6, 0, 7)  # BLOCK_M=4 BLOCK_N=1024 num_warps=4 num_ctas=1 num_stages=3
                    else:
                        return (2, 3, 4, 5, 6, 7, 1, 0)  # BLOCK_M=1 BLOCK_N=2048 num_warps=4 num_ctas=1 num_stages=3
                else:
                    return (2, 4, 3, 5, 6, 0, 1, 7)  # BLOCK_M=1 BLOCK_N=2048 num_warps=4 num_ctas=1 num_stages=3
            else:
                return (3, 4, 5, 6, 2, 0, 1, 7)  # BLOCK_M=1 BLOCK_N=4096 num_warps=4 num_ctas=1 num_stages=3
        else:
            return (4, 5, 6, 3, 2, 0, 1, 7)  # BLOCK_M=1 BLOCK_N=8192 num_warps=8 num_ctas=1 num_stages=3
    else:
        return (5, 6, 4, 3, 2, 0, 1, 7)  # BLOCK_M=1 BLOCK_N=16384 num_warps=8 num_ctas=1 num_stages=3
