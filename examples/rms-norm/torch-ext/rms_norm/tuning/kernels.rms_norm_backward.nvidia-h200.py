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
SOURCE = "sha256:f768bc26b49f03b733b8e56ecc3346f089f7456ca0ab57afbae3540dcc23a8a2"
FEATURES = {
    "M": "int",
    "N": "int",
    "dx_ptr_dtype": "str",
}
CONFIGS = (
    {"TILE": 512, "num_warps": 4, "num_ctas": 1, "num_stages": 3},  # 0
    {"TILE": 4096, "num_warps": 2, "num_ctas": 1, "num_stages": 3},  # 1
    {"TILE": 2048, "num_warps": 4, "num_ctas": 1, "num_stages": 3},  # 2
    {"TILE": 8192, "num_warps": 4, "num_ctas": 1, "num_stages": 3},  # 3
    {"TILE": 16384, "num_warps": 16, "num_ctas": 1, "num_stages": 3},  # 4
    {"TILE": 4096, "num_warps": 16, "num_ctas": 1, "num_stages": 3},  # 5
    {"TILE": 8192, "num_warps": 8, "num_ctas": 1, "num_stages": 3},  # 6
    {"TILE": 2048, "num_warps": 16, "num_ctas": 1, "num_stages": 3},  # 7
)


def choose(M, N, dx_ptr_dtype):
    if N <= 2048:
        if N <= 512:
            if M <= 1500:
                return (0, 1, 2, 3, 7, 6, 5, 4)  # TILE=512 num_warps=4 num_ctas=1 num_stages=3
            else:
                return (1, 0, 3, 2, 6, 4, 7, 5)  # TILE=4096 num_warps=2 num_ctas=1 num_stages=3
        elif M <= 6600:
            return (2, 1, 3, 7, 6, 0, 4, 5)  # TILE=2048 num_warps=4 num_ctas=1 num_stages=3
        elif N <= 1200:
            return (1, 2, 3, 6, 0, 7, 4, 5)  # TILE=4096 num_warps=2 num_ctas=1 num_stages=3
        else:
            return (3, 2, 1, 6, 7, 4, 0, 5)  # TILE=8192 num_warps=4 num_ctas=1 num_stages=3
    elif N <= 4096:
        if M <= 2.8:
            return (4, 6, 3, 5, 7, 1, 2, 0)  # TILE=16384 num_warps=16 num_ctas=1 num_stages=3
        elif M <= 13000:
            return (5, 3, 6, 7, 4, 2, 1, 0)  # TILE=4096 num_warps=16 num_ctas=1 num_stages=3
        else:
            return (4, 3, 5, 6, 1, 7, 2, 0)  # TILE=16384 num_warps=16 num_ctas=1 num_stages=3
    elif N <= 8192:
        if M <= 160:
            return (6, 7, 4, 5, 2, 1, 3, 0)  # TILE=8192 num_warps=8 num_ctas=1 num_stages=3
        else:
            return (4, 6, 7, 5, 3, 1, 2, 0)  # TILE=16384 num_warps=16 num_ctas=1 num_stages=3
    elif M <= 330:
        return (7, 5, 6, 3, 2, 1, 4, 0)  # TILE=2048 num_warps=16 num_ctas=1 num_stages=3
    elif dx_ptr_dtype in ("bfloat16",):
        if M <= 920:
            return (7, 5, 6, 1, 3, 4, 2, 0)  # TILE=2048 num_warps=16 num_ctas=1 num_stages=3
        else:
            return (4, 5, 6, 3, 7, 1, 2, 0)  # TILE=16384 num_warps=16 num_ctas=1 num_stages=3
    else:
        return (6, 5, 7, 3, 1, 2, 0, 4)  # TILE=8192 num_warps=8 num_ctas=1 num_stages=3
