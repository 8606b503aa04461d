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
    {"TILE": 1024, "num_warps": 4, "num_ctas": 1, "num_stages": 3},  # 1
    {"TILE": 2048, "num_warps": 4, "num_ctas": 1, "num_stages": 3},  # 2
    {"TILE": 1024, "num_warps": 1, "num_ctas": 1, "num_stages": 3},  # 3
    {"TILE": 4096, "num_warps": 8, "num_ctas": 1, "num_stages": 3},  # 4
    {"TILE": 8192, "num_warps": 16, "num_ctas": 1, "num_stages": 3},  # 5
    {"TILE": 8192, "num_warps": 8, "num_ctas": 1, "num_stages": 3},  # 6
    {"TILE": 16384, "num_warps": 16, "num_ctas": 1, "num_stages": 3},  # 7
)


def choose(M, N, dx_ptr_dtype):
    if N <= 2050:
        if N <= 1024:
            if -(-M // 512) * -(-N // 512) <= 1.4:
                if N <= 407:
                    return (0, 1, 2, 3, 4, 5, 6, 7)  # TILE=512 num_warps=4 num_ctas=1 num_stages=3
                else:
                    return (1, 0, 2, 3, 4, 5, 6, 7)  # TILE=1024 num_warps=4 num_ctas=1 num_stages=3
            elif M * N <= 2220000:
                if M * N <= 65000:
                    if M <= 220:
                        return (1, 2, 3, 0, 4, 5, 6, 7)  # TILE=1024 num_warps=4 num_ctas=1 num_stages=3
                    else:
                        return (0, 1, 3, 2, 4, 5, 6, 7)  # TILE=512 num_warps=4 num_ctas=1 num_stages=3
                elif M * N <= 102000:
                    if M <= 290:
                        return (1, 3, 2, 0, 4, 5, 6, 7)  # TILE=1024 num_warps=4 num_ctas=1 num_stages=3
                    else:
                        return (0, 1, 3, 2, 4, 5, 6, 7)  # TILE=512 num_warps=4 num_ctas=1 num_stages=3
                elif M * N <= 120000:
                    return (1, 3, 2, 0, 4, 5, 6, 7)  # TILE=1024 num_warps=4 num_ctas=1 num_stages=3
                elif M * N <= 152230:
                    return (0, 1, 2, 3, 4, 5, 6, 7)  # TILE=512 num_warps=4 num_ctas=1 num_stages=3
                elif N <= 210:
                    if M <= 2050:
                        return (0, 1, 2, 3, 4, 5, 6, 7)  # TILE=512 num_warps=4 num_ctas=1 num_stages=3
                    else:
                        return (1, 3, 2, 0, 4, 5, 6, 7)  # TILE=1024 num_warps=4 num_ctas=1 num_stages=3
                elif M <= 4500:
                    return (1, 2, 3, 4, 0, 6, 5, 7)  # TILE=1024 num_warps=4 num_ctas=1 num_stages=3
                else:
                    return (2, 1, 3, 4, 6, 5, 0, 7)  # TILE=2048 num_warps=4 num_ctas=1 num_stages=3
            elif M <= 3495 * -(-M // 4096):
                if N <= 290:
                    return (2, 1, 4, 3, 5, 6, 7, 0)  # TILE=2048 num_warps=4 num_ctas=1 num_stages=3
                else:
                    return (3, 1, 2, 4, 6, 0, 5, 7)  # TILE=1024 num_warps=1 num_ctas=1 num_stages=3
            else:
                return (3, 1, 2, 4, 0, 6, 5, 7)  # TILE=1024 num_warps=1 num_ctas=1 num_stages=3
        elif M <= 2940:
            if M <= 2858.5:
                return (2, 4, 1, 6, 5, 0, 3, 7)  # TILE=2048 num_warps=4 num_ctas=1 num_stages=3
            else:
                return (3, 1, 2, 0, 4, 6, 5, 7)  # TILE=1024 num_warps=1 num_ctas=1 num_stages=3
        else:
            return (2, 4, 3, 6, 5, 0, 1, 7)  # TILE=2048 num_warps=4 num_ctas=1 num_stages=3
    elif N <= 5880.5 * -(-N // 8192):
        if N <= 8192:
            if N <= 4096:
                return (4, 6, 5, 2, 1, 0, 7, 3)  # TILE=4096 num_warps=8 num_ctas=1 num_stages=3
            elif M <= 1130:
                if M <= 120:
                    return (5, 6, 4, 2, 7, 1, 0, 3)  # TILE=8192 num_warps=16 num_ctas=1 num_stages=3
                else:
                    return (6, 5, 2, 1, 4, 7, 0, 3)  # TILE=8192 num_warps=8 num_ctas=1 num_stages=3
            elif N <= 4600:
                if M <= 23000:
                    return (2, 5, 1, 6, 3, 0, 4, 7)  # TILE=2048 num_warps=4 num_ctas=1 num_stages=3
                else:
                    return (5, 6, 7, 4, 2, 1, 0, 3)  # TILE=8192 num_warps=16 num_ctas=1 num_stages=3
            else:
                return (5, 6, 2, 4, 7, 1, 0, 3)  # TILE=8192 num_warps=16 num_ctas=1 num_stages=3
        elif M <= 136:
            if N <= 16384:
                return (7, 4, 5, 6, 2, 1, 0, 3)  # TILE=16384 num_warps=16 num_ctas=1 num_stages=3
            elif M <= 10.4:
                return (5, 4, 7, 6, 2, 1, 0, 3)  # TILE=8192 num_warps=16 num_ctas=1 num_stages=3
            else:
                return (4, 5, 6, 2, 7, 1, 0, 3)  # TILE=4096 num_warps=8 num_ctas=1 num_stages=3
        elif N <= 5727 * -(-N // 8192):
            return (4, 2, 6, 7, 1, 5, 0, 3)  # TILE=4096 num_warps=8 num_ctas=1 num_stages=3
        elif dx_ptr_dtype in ("bfloat16",):
            return (6, 4, 7, 5, 2, 1, 3, 0)  # TILE=8192 num_warps=8 num_ctas=1 num_stages=3
        else:
            return (7, 5, 6, 4, 2, 1, 0, 3)  # TILE=16384 num_warps=16 num_ctas=1 num_stages=3
    elif N <= 11944.8 * -(-N // 16384):
        if M <= 388 * -(-M // 512):
            if -(-M // 512) * -(-N // 512) <= 36.5:
                if M <= 160:
                    return (5, 6, 7, 4, 2, 1, 0, 3)  # TILE=8192 num_warps=16 num_ctas=1 num_stages=3
                else:
                    return (6, 5, 4, 2, 7, 1, 0, 3)  # TILE=8192 num_warps=8 num_ctas=1 num_stages=3
            elif -(-M // 512) * -(-N // 512) <= 38.5:
                return (4, 5, 6, 7, 2, 1, 0, 3)  # TILE=4096 num_warps=8 num_ctas=1 num_stages=3
            else:
                return (5, 4, 6, 7, 2, 1, 0, 3)  # TILE=8192 num_warps=16 num_ctas=1 num_stages=3
        elif N <= 11280 * -(-N // 16384):
            if M <= 3260 * -(-M // 4096):
                return (6, 5, 7, 4, 2, 1, 0, 3)  # TILE=8192 num_warps=8 num_ctas=1 num_stages=3
            else:
                return (5, 6, 7, 4, 2, 1, 3, 0)  # TILE=8192 num_warps=16 num_ctas=1 num_stages=3
        else:
            return (7, 5, 6, 4, 2, 1, 3, 0)  # TILE=16384 num_warps=16 num_ctas=1 num_stages=3
    elif M <= 6.11e-05 * N:
        if dx_ptr_dtype in ("bfloat16",):
            return (5, 7, 6, 4, 2, 1, 0, 3)  # TILE=8192 num_warps=16 num_ctas=1 num_stages=3
        else:
            return (7, 5, 6, 4, 2, 1, 0, 3)  # TILE=16384 num_warps=16 num_ctas=1 num_stages=3
    elif N <= 958.7 * -(-N // 1024):
        return (4, 2, 7, 6, 5, 1, 0, 3)  # TILE=4096 num_warps=8 num_ctas=1 num_stages=3
    elif M <= 194:
        if N <= 16384:
            return (7, 4, 5, 6, 2, 1, 0, 3)  # TILE=16384 num_warps=16 num_ctas=1 num_stages=3
        elif N <= 14320 * -(-N // 16384):
            if dx_ptr_dtype in ("bfloat16",):
                return (5, 7, 6, 4, 2, 1, 0, 3)  # TILE=8192 num_warps=16 num_ctas=1 num_stages=3
            else:
                return (7, 5, 6, 4, 2, 1, 0, 3)  # TILE=16384 num_warps=16 num_ctas=1 num_stages=3
        elif N <= 43300:
            if dx_ptr_dtype in ("bfloat16",):
                return (5, 7, 6, 4, 2, 1, 0, 3)  # TILE=8192 num_warps=16 num_ctas=1 num_stages=3
            else:
                return (7, 5, 4, 6, 2, 1, 0, 3)  # TILE=16384 num_warps=16 num_ctas=1 num_stages=3
        else:
            return (7, 5, 6, 4, 2, 1, 0, 3)  # TILE=16384 num_warps=16 num_ctas=1 num_stages=3
    elif -(-M // 512) * -(-N // 512) <= 39:
        if M <= 420:
            return (4, 2, 6, 7, 1, 5, 0, 3)  # TILE=4096 num_warps=8 num_ctas=1 num_stages=3
        else:
            return (2, 4, 6, 7, 1, 0, 5, 3)  # TILE=2048 num_warps=4 num_ctas=1 num_stages=3
    elif M <= 364:
        return (5, 7, 6, 4, 2, 1, 0, 3)  # TILE=8192 num_warps=16 num_ctas=1 num_stages=3
    else:
        return (7, 5, 6, 4, 2, 1, 3, 0)  # TILE=16384 num_warps=16 num_ctas=1 num_stages=3
