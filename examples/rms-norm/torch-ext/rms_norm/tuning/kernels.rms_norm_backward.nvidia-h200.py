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
    "dw_ptr_dim0": "int",
    "dx_ptr_dtype": "str",
}
CONFIGS = (
    {"TILE": 4096, "num_warps": 2, "num_ctas": 1, "num_stages": 3},  # 0
    {"TILE": 2048, "num_warps": 4, "num_ctas": 1, "num_stages": 3},  # 1
    {"TILE": 512, "num_warps": 1, "num_ctas": 1, "num_stages": 3},  # 2
    {"TILE": 1024, "num_warps": 2, "num_ctas": 1, "num_stages": 3},  # 3
    {"TILE": 2048, "num_warps": 16, "num_ctas": 1, "num_stages": 3},  # 4
    {"TILE": 4096, "num_warps": 16, "num_ctas": 1, "num_stages": 3},  # 5
    {"TILE": 16384, "num_warps": 16, "num_ctas": 1, "num_stages": 3},  # 6
    {"TILE": 8192, "num_warps": 16, "num_ctas": 1, "num_stages": 3},  # 7
)


def choose(M, N, dw_ptr_dim0, dx_ptr_dtype):
    if N <= 1024:
        if M <= 1625.5:
            if -(-M // 512) * -(-N // 512) <= 1.4:
                if M * N <= 1090:
                    if M <= 0.0035 * N:
                        if dx_ptr_dtype in ("bfloat16",):
                            return (0, 2, 3, 1, 4, 5, 7, 6)  # TILE=4096 num_warps=2 num_ctas=1 num_stages=3
                        else:
                            return (1, 2, 3, 0, 4, 5, 7, 6)  # TILE=2048 num_warps=4 num_ctas=1 num_stages=3
                    elif M * N <= 930:
                        return (2, 3, 1, 0, 4, 5, 7, 6)  # TILE=512 num_warps=1 num_ctas=1 num_stages=3
                    elif M * N <= 990:
                        if dx_ptr_dtype in ("bfloat16",):
                            return (3, 2, 1, 0, 4, 6, 5, 7)  # TILE=1024 num_warps=2 num_ctas=1 num_stages=3
                        else:
                            return (2, 3, 1, 0, 4, 5, 6, 7)  # TILE=512 num_warps=1 num_ctas=1 num_stages=3
                    else:
                        return (2, 3, 1, 0, 4, 5, 7, 6)  # TILE=512 num_warps=1 num_ctas=1 num_stages=3
                elif M <= 4.5:
                    return (3, 2, 1, 0, 4, 5, 7, 6)  # TILE=1024 num_warps=2 num_ctas=1 num_stages=3
                else:
                    return (2, 3, 1, 0, 4, 5, 7, 6)  # TILE=512 num_warps=1 num_ctas=1 num_stages=3
            elif -(-N // 512) * -(-dw_ptr_dim0 // 512) <= 2.8:
                if N <= 290:
                    if M <= 1040:
                        return (2, 3, 0, 1, 4, 5, 7, 6)  # TILE=512 num_warps=1 num_ctas=1 num_stages=3
                    else:
                        return (3, 2, 0, 1, 5, 7, 4, 6)  # TILE=1024 num_warps=2 num_ctas=1 num_stages=3
                else:
                    return (3, 1, 0, 2, 4, 5, 7, 6)  # TILE=1024 num_warps=2 num_ctas=1 num_stages=3
            else:
                return (1, 3, 0, 2, 4, 6, 7, 5)  # TILE=2048 num_warps=4 num_ctas=1 num_stages=3
        elif M <= 4.04 * N:
            return (1, 0, 3, 6, 2, 4, 7, 5)  # TILE=2048 num_warps=4 num_ctas=1 num_stages=3
        elif M <= 4530:
            if N <= 540:
                return (0, 3, 2, 1, 6, 4, 7, 5)  # TILE=4096 num_warps=2 num_ctas=1 num_stages=3
            else:
                return (1, 0, 3, 2, 4, 6, 7, 5)  # TILE=2048 num_warps=4 num_ctas=1 num_stages=3
        elif M <= 7.8 * N:
            return (1, 0, 3, 2, 4, 6, 7, 5)  # TILE=2048 num_warps=4 num_ctas=1 num_stages=3
        else:
            return (0, 3, 1, 2, 4, 6, 7, 5)  # TILE=4096 num_warps=2 num_ctas=1 num_stages=3
    elif N <= 2048:
        if M * N <= 62000:
            if dx_ptr_dtype in ("bfloat16",):
                return (4, 1, 0, 3, 2, 5, 7, 6)  # TILE=2048 num_warps=16 num_ctas=1 num_stages=3
            else:
                return (1, 4, 5, 0, 3, 7, 2, 6)  # TILE=2048 num_warps=4 num_ctas=1 num_stages=3
        else:
            return (1, 0, 4, 3, 2, 6, 7, 5)  # TILE=2048 num_warps=4 num_ctas=1 num_stages=3
    elif N <= 4096:
        if M * N <= 49000000:
            return (5, 7, 4, 6, 1, 0, 3, 2)  # TILE=4096 num_warps=16 num_ctas=1 num_stages=3
        else:
            return (6, 5, 7, 0, 4, 1, 3, 2)  # TILE=16384 num_warps=16 num_ctas=1 num_stages=3
    elif N <= 8192:
        if M <= 137:
            return (7, 4, 6, 5, 1, 0, 3, 2)  # TILE=8192 num_warps=16 num_ctas=1 num_stages=3
        elif M <= 231.5:
            if dx_ptr_dtype in ("bfloat16",):
                return (6, 7, 4, 5, 1, 0, 3, 2)  # TILE=16384 num_warps=16 num_ctas=1 num_stages=3
            else:
                return (7, 6, 5, 4, 1, 0, 3, 2)  # TILE=8192 num_warps=16 num_ctas=1 num_stages=3
        elif M <= 1111:
            return (7, 6, 4, 5, 1, 0, 3, 2)  # TILE=8192 num_warps=16 num_ctas=1 num_stages=3
        else:
            return (6, 7, 4, 5, 0, 1, 3, 2)  # TILE=16384 num_warps=16 num_ctas=1 num_stages=3
    elif M <= 490:
        if dx_ptr_dtype in ("bfloat16",):
            if M * N <= 5500000:
                if N <= 16290:
                    if N <= 15400:
                        if M <= 44:
                            if N <= 13760:
                                return (4, 5, 6, 7, 1, 0, 3, 2)  # TILE=2048 num_warps=16 num_ctas=1 num_stages=3
                            else:
                                return (6, 4, 7, 5, 0, 1, 3, 2)  # TILE=16384 num_warps=16 num_ctas=1 num_stages=3
                        elif M <= 0.00356 * N:
                            return (6, 4, 7, 5, 0, 1, 3, 2)  # TILE=16384 num_warps=16 num_ctas=1 num_stages=3
                        else:
                            return (4, 5, 7, 6, 0, 1, 3, 2)  # TILE=2048 num_warps=16 num_ctas=1 num_stages=3
                    elif M <= 77:
                        return (6, 4, 7, 5, 0, 1, 3, 2)  # TILE=16384 num_warps=16 num_ctas=1 num_stages=3
                    else:
                        return (4, 5, 7, 6, 0, 1, 3, 2)  # TILE=2048 num_warps=16 num_ctas=1 num_stages=3
                else:
                    return (6, 4, 7, 5, 0, 1, 3, 2)  # TILE=16384 num_warps=16 num_ctas=1 num_stages=3
            else:
                return (5, 7, 4, 6, 0, 1, 3, 2)  # TILE=4096 num_warps=16 num_ctas=1 num_stages=3
        else:
            return (5, 4, 7, 1, 0, 3, 2, 6)  # TILE=4096 num_warps=16 num_ctas=1 num_stages=3
    elif dx_ptr_dtype in ("float32",):
        return (7, 5, 4, 0, 1, 3, 2, 6)  # TILE=8192 num_warps=16 num_ctas=1 num_stages=3
    elif -(-M // 1024) * -(-N // 1024) <= 27.5:
        return (5, 7, 6, 4, 0, 1, 3, 2)  # TILE=4096 num_warps=16 num_ctas=1 num_stages=3
    else:
        return (6, 5, 7, 4, 0, 1, 3, 2)  # TILE=16384 num_warps=16 num_ctas=1 num_stages=3
