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
SOURCE = "sha256:2f29b2e3d2cd2735c5977a0d89e0e91ada8b0c7081221fd8daf8db7c3f962473"
FEATURES = {
    "M": "int",
    "N": "int",
    "w_ptr_dtype": "str",
}
CONFIGS = (
    {"TILE": 1024, "num_warps": 4, "num_ctas": 1, "num_stages": 3},  # 0
    {"TILE": 2048, "num_warps": 4, "num_ctas": 1, "num_stages": 3},  # 1
    {"TILE": 2048, "num_warps": 2, "num_ctas": 1, "num_stages": 3},  # 2
    {"TILE": 2048, "num_warps": 1, "num_ctas": 1, "num_stages": 3},  # 3
    {"TILE": 4096, "num_warps": 4, "num_ctas": 1, "num_stages": 3},  # 4
    {"TILE": 4096, "num_warps": 8, "num_ctas": 1, "num_stages": 3},  # 5
    {"TILE": 8192, "num_warps": 4, "num_ctas": 1, "num_stages": 3},  # 6
    {"TILE": 16384, "num_warps": 8, "num_ctas": 1, "num_stages": 3},  # 7
)


def choose(M, N, w_ptr_dtype):
    if N <= 4096:
        if -(-M // 1024) * -(-N // 1024) <= 1.4:
            if M * N <= 252600:
                if M * N <= 181300:
                    if M <= 142.5:
                        return (0, 1, 2, 5, 4, 3, 6, 7)  # TILE=1024 num_warps=4 num_ctas=1 num_stages=3
                    elif N <= 480:
                        return (0, 1, 5, 2, 4, 3, 6, 7)  # TILE=1024 num_warps=4 num_ctas=1 num_stages=3
                    else:
                        return (1, 0, 2, 5, 4, 3, 6, 7)  # TILE=2048 num_warps=4 num_ctas=1 num_stages=3
                elif M <= 690:
                    return (1, 0, 5, 2, 4, 3, 6, 7)  # TILE=2048 num_warps=4 num_ctas=1 num_stages=3
                else:
                    return (0, 1, 2, 4, 5, 3, 6, 7)  # TILE=1024 num_warps=4 num_ctas=1 num_stages=3
            elif N <= 540:
                return (1, 2, 0, 5, 4, 3, 6, 7)  # TILE=2048 num_warps=4 num_ctas=1 num_stages=3
            else:
                return (2, 1, 5, 4, 0, 3, 6, 7)  # TILE=2048 num_warps=2 num_ctas=1 num_stages=3
        elif N <= 1060:
            if N <= 410:
                if M * N <= 1530000:
                    return (1, 2, 5, 0, 4, 3, 6, 7)  # TILE=2048 num_warps=4 num_ctas=1 num_stages=3
                elif N <= 290:
                    return (1, 3, 4, 2, 5, 0, 6, 7)  # TILE=2048 num_warps=4 num_ctas=1 num_stages=3
                else:
                    return (3, 1, 2, 4, 5, 6, 0, 7)  # TILE=2048 num_warps=1 num_ctas=1 num_stages=3
            elif N <= 480:
                if M <= 3800:
                    return (2, 1, 3, 4, 5, 0, 6, 7)  # TILE=2048 num_warps=2 num_ctas=1 num_stages=3
                else:
                    return (3, 4, 2, 1, 5, 6, 0, 7)  # TILE=2048 num_warps=1 num_ctas=1 num_stages=3
            else:
                return (2, 3, 4, 1, 6, 5, 0, 7)  # TILE=2048 num_warps=2 num_ctas=1 num_stages=3
        elif -(-M // 1024) * -(-N // 1024) <= 2.4:
            if M <= 78:
                return (1, 4, 2, 5, 3, 6, 0, 7)  # TILE=2048 num_warps=4 num_ctas=1 num_stages=3
            else:
                return (4, 5, 2, 1, 6, 3, 0, 7)  # TILE=4096 num_warps=4 num_ctas=1 num_stages=3
        elif M * N <= 536000:
            if M <= 1.4:
                return (4, 5, 6, 7, 1, 0, 3, 2)  # TILE=4096 num_warps=4 num_ctas=1 num_stages=3
            else:
                return (5, 4, 6, 7, 1, 0, 2, 3)  # TILE=4096 num_warps=8 num_ctas=1 num_stages=3
        elif N <= 2140:
            if M <= 8100 * -(-M // 8192):
                return (4, 6, 2, 5, 1, 3, 0, 7)  # TILE=4096 num_warps=4 num_ctas=1 num_stages=3
            else:
                return (2, 1, 5, 4, 6, 3, 0, 7)  # TILE=2048 num_warps=2 num_ctas=1 num_stages=3
        elif N <= 2460:
            if M <= 790:
                return (4, 6, 5, 7, 0, 1, 2, 3)  # TILE=4096 num_warps=4 num_ctas=1 num_stages=3
            else:
                return (6, 4, 5, 0, 7, 2, 3, 1)  # TILE=8192 num_warps=4 num_ctas=1 num_stages=3
        elif M <= 1960:
            if M <= 240:
                return (4, 6, 5, 7, 1, 0, 2, 3)  # TILE=4096 num_warps=4 num_ctas=1 num_stages=3
            elif M <= 0.103 * N:
                return (5, 4, 6, 7, 1, 0, 2, 3)  # TILE=4096 num_warps=8 num_ctas=1 num_stages=3
            else:
                return (4, 6, 5, 7, 0, 1, 2, 3)  # TILE=4096 num_warps=4 num_ctas=1 num_stages=3
        elif M <= 2010:
            return (0, 4, 5, 6, 1, 7, 2, 3)  # TILE=1024 num_warps=4 num_ctas=1 num_stages=3
        elif M <= 704 * -(-M // 1024):
            return (4, 0, 6, 5, 7, 1, 2, 3)  # TILE=4096 num_warps=4 num_ctas=1 num_stages=3
        elif M <= 849 * -(-M // 1024):
            return (6, 4, 5, 2, 3, 7, 0, 1)  # TILE=8192 num_warps=4 num_ctas=1 num_stages=3
        elif M <= 8000:
            if M <= 1.51 * N:
                return (4, 6, 5, 7, 0, 1, 2, 3)  # TILE=4096 num_warps=4 num_ctas=1 num_stages=3
            else:
                return (6, 4, 5, 0, 2, 7, 3, 1)  # TILE=8192 num_warps=4 num_ctas=1 num_stages=3
        else:
            return (4, 6, 5, 7, 0, 1, 2, 3)  # TILE=4096 num_warps=4 num_ctas=1 num_stages=3
    elif N <= 8192:
        if M * N <= 9100000:
            if M <= 1700 * -(-M // 2048):
                if M <= 990 * -(-M // 1024):
                    return (6, 7, 5, 4, 1, 0, 2, 3)  # TILE=8192 num_warps=4 num_ctas=1 num_stages=3
                else:
                    return (1, 6, 0, 7, 5, 4, 2, 3)  # TILE=2048 num_warps=4 num_ctas=1 num_stages=3
            else:
                return (1, 6, 2, 0, 3, 4, 7, 5)  # TILE=2048 num_warps=4 num_ctas=1 num_stages=3
        elif M <= 2150:
            if N <= 6200:
                if M <= 2010:
                    return (1, 3, 0, 2, 6, 4, 7, 5)  # TILE=2048 num_warps=4 num_ctas=1 num_stages=3
                else:
                    return (3, 1, 2, 0, 6, 4, 5, 7)  # TILE=2048 num_warps=1 num_ctas=1 num_stages=3
            elif M <= 1580:
                return (1, 2, 6, 0, 3, 5, 7, 4)  # TILE=2048 num_warps=4 num_ctas=1 num_stages=3
            else:
                return (6, 1, 2, 7, 5, 4, 3, 0)  # TILE=8192 num_warps=4 num_ctas=1 num_stages=3
        elif M <= 2590:
            return (6, 1, 7, 2, 3, 5, 4, 0)  # TILE=8192 num_warps=4 num_ctas=1 num_stages=3
        elif M <= 2750:
            return (3, 6, 2, 1, 7, 0, 4, 5)  # TILE=2048 num_warps=1 num_ctas=1 num_stages=3
        else:
            return (6, 7, 5, 4, 1, 0, 2, 3)  # TILE=8192 num_warps=4 num_ctas=1 num_stages=3
    elif -(-M // 1024) * -(-N // 1024) <= 17:
        if M <= 810:
            if M <= 0.0511 * N:
                return (7, 5, 4, 6, 1, 0, 2, 3)  # TILE=16384 num_warps=8 num_ctas=1 num_stages=3
            elif N <= 10200:
                return (7, 5, 4, 0, 1, 2, 3, 6)  # TILE=16384 num_warps=8 num_ctas=1 num_stages=3
            else:
                return (5, 4, 7, 0, 1, 2, 6, 3)  # TILE=4096 num_warps=8 num_ctas=1 num_stages=3
        else:
            return (1, 5, 4, 0, 2, 7, 3, 6)  # TILE=2048 num_warps=4 num_ctas=1 num_stages=3
    elif -(-M // 1024) * -(-N // 1024) <= 25.5:
        return (1, 2, 4, 5, 0, 3, 7, 6)  # TILE=2048 num_warps=4 num_ctas=1 num_stages=3
    elif N <= 10210:
        if w_ptr_dtype in ("bfloat16",):
            return (5, 4, 7, 1, 0, 3, 2, 6)  # TILE=4096 num_warps=8 num_ctas=1 num_stages=3
        else:
            return (7, 6, 5, 4, 1, 0, 2, 3)  # TILE=16384 num_warps=8 num_ctas=1 num_stages=3
    elif M <= 4040 * -(-M // 4096):
        return (7, 5, 4, 6, 1, 0, 2, 3)  # TILE=16384 num_warps=8 num_ctas=1 num_stages=3
    else:
        return (5, 4, 7, 1, 0, 2, 3, 6)  # TILE=4096 num_warps=8 num_ctas=1 num_stages=3
