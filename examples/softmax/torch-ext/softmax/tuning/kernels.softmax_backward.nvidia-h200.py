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
SOURCE = "sha256:ccd4c8820c38433599b7728bad0f10e5c42a83b697c9184d2c669f37e46eb4d4"
FEATURES = {
    "M": "int",
    "N": "int",
    "dx_ptr_dtype": "str",
}
CONFIGS = (
    {"TILE": 512, "num_warps": 4, "num_ctas": 1, "num_stages": 3},  # 0
    {"TILE": 1024, "num_warps": 2, "num_ctas": 1, "num_stages": 3},  # 1
    {"TILE": 2048, "num_warps": 8, "num_ctas": 1, "num_stages": 3},  # 2
    {"TILE": 512, "num_warps": 1, "num_ctas": 1, "num_stages": 3},  # 3
    {"TILE": 2048, "num_warps": 4, "num_ctas": 1, "num_stages": 3},  # 4
    {"TILE": 4096, "num_warps": 8, "num_ctas": 1, "num_stages": 3},  # 5
    {"TILE": 8192, "num_warps": 16, "num_ctas": 1, "num_stages": 3},  # 6
    {"TILE": 16384, "num_warps": 16, "num_ctas": 1, "num_stages": 3},  # 7
)


def choose(M, N, dx_ptr_dtype):
    if N <= 7700:
        if N <= 1024:
            if M <= 1470:
                if N <= 480:
                    return (0, 2, 3, 1, 4, 5, 6, 7)  # TILE=512 num_warps=4 num_ctas=1 num_stages=3
                else:
                    return (1, 2, 4, 0, 5, 3, 6, 7)  # TILE=1024 num_warps=2 num_ctas=1 num_stages=3
            elif N <= 75:
                return (2, 1, 4, 5, 0, 6, 3, 7)  # TILE=2048 num_warps=8 num_ctas=1 num_stages=3
            elif M <= 4400:
                if M <= 3960:
                    return (1, 4, 2, 5, 3, 0, 6, 7)  # TILE=1024 num_warps=2 num_ctas=1 num_stages=3
                elif dx_ptr_dtype in ("bfloat16",):
                    return (2, 4, 5, 1, 6, 3, 7, 0)  # TILE=2048 num_warps=8 num_ctas=1 num_stages=3
                else:
                    return (3, 4, 1, 2, 5, 0, 6, 7)  # TILE=512 num_warps=1 num_ctas=1 num_stages=3
            else:
                return (1, 4, 2, 5, 3, 0, 6, 7)  # TILE=1024 num_warps=2 num_ctas=1 num_stages=3
        elif N <= 4096:
            if N <= 2000:
                return (4, 2, 5, 6, 0, 1, 3, 7)  # TILE=2048 num_warps=4 num_ctas=1 num_stages=3
            else:
                return (5, 6, 2, 4, 0, 7, 1, 3)  # TILE=4096 num_warps=8 num_ctas=1 num_stages=3
        else:
            return (6, 2, 4, 5, 7, 0, 1, 3)  # TILE=8192 num_warps=16 num_ctas=1 num_stages=3
    elif M <= 65:
        if N <= 16384:
            return (7, 6, 2, 5, 4, 0, 1, 3)  # TILE=16384 num_warps=16 num_ctas=1 num_stages=3
        elif N <= 19900:
            return (5, 2, 6, 4, 7, 0, 1, 3)  # TILE=4096 num_warps=8 num_ctas=1 num_stages=3
        elif dx_ptr_dtype in ("bfloat16",):
            return (6, 7, 5, 2, 4, 0, 1, 3)  # TILE=8192 num_warps=16 num_ctas=1 num_stages=3
        else:
            return (7, 6, 5, 2, 4, 1, 0, 3)  # TILE=16384 num_warps=16 num_ctas=1 num_stages=3
    elif N <= 12400:
        if N <= 8192:
            return (6, 7, 5, 2, 4, 0, 1, 3)  # TILE=8192 num_warps=16 num_ctas=1 num_stages=3
        else:
            return (4, 2, 5, 7, 1, 0, 6, 3)  # TILE=2048 num_warps=4 num_ctas=1 num_stages=3
    else:
        return (7, 6, 5, 2, 4, 1, 0, 3)  # TILE=16384 num_warps=16 num_ctas=1 num_stages=3
