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
    {"TILE": 2048, "num_warps": 8, "num_ctas": 1, "num_stages": 3},  # 1
    {"TILE": 4096, "num_warps": 8, "num_ctas": 1, "num_stages": 3},  # 2
    {"TILE": 4096, "num_warps": 4, "num_ctas": 1, "num_stages": 3},  # 3
    {"TILE": 4096, "num_warps": 2, "num_ctas": 1, "num_stages": 3},  # 4
    {"TILE": 8192, "num_warps": 4, "num_ctas": 1, "num_stages": 3},  # 5
    {"TILE": 8192, "num_warps": 8, "num_ctas": 1, "num_stages": 3},  # 6
    {"TILE": 16384, "num_warps": 8, "num_ctas": 1, "num_stages": 3},  # 7
)


def choose(M, N, w_ptr_dtype):
    if N <= 4096:
        if N <= 540:
            if M <= 160:
                return (0, 1, 2, 3, 6, 4, 5, 7)  # TILE=1024 num_warps=4 num_ctas=1 num_stages=3
            elif M <= 760:
                return (1, 0, 2, 3, 6, 5, 4, 7)  # TILE=2048 num_warps=8 num_ctas=1 num_stages=3
            else:
                return (2, 1, 0, 3, 6, 4, 5, 7)  # TILE=4096 num_warps=8 num_ctas=1 num_stages=3
        elif M <= 120:
            if N <= 2048:
                if N <= 1024:
                    return (0, 1, 2, 3, 4, 6, 5, 7)  # TILE=1024 num_warps=4 num_ctas=1 num_stages=3
                elif M <= 37:
                    return (1, 3, 2, 4, 5, 6, 0, 7)  # TILE=2048 num_warps=8 num_ctas=1 num_stages=3
                else:
                    return (3, 1, 2, 4, 5, 6, 0, 7)  # TILE=4096 num_warps=4 num_ctas=1 num_stages=3
            elif M <= 8.9:
                if N <= 3800:
                    return (3, 2, 6, 4, 5, 7, 1, 0)  # TILE=4096 num_warps=4 num_ctas=1 num_stages=3
                elif M <= 2.8:
                    return (3, 2, 6, 5, 4, 7, 1, 0)  # TILE=4096 num_warps=4 num_ctas=1 num_stages=3
                else:
                    return (2, 3, 4, 6, 5, 1, 7, 0)  # TILE=4096 num_warps=8 num_ctas=1 num_stages=3
            elif N <= 3900:
                return (2, 3, 4, 6, 5, 1, 7, 0)  # TILE=4096 num_warps=8 num_ctas=1 num_stages=3
            else:
                return (3, 2, 4, 6, 5, 1, 7, 0)  # TILE=4096 num_warps=4 num_ctas=1 num_stages=3
        elif N <= 670:
            return (4, 3, 5, 6, 2, 0, 7, 1)  # TILE=4096 num_warps=2 num_ctas=1 num_stages=3
        elif M <= 690:
            if N <= 970:
                return (1, 0, 3, 5, 2, 4, 6, 7)  # TILE=2048 num_warps=8 num_ctas=1 num_stages=3
            elif N <= 3600:
                return (3, 2, 4, 5, 6, 1, 7, 0)  # TILE=4096 num_warps=4 num_ctas=1 num_stages=3
            else:
                return (2, 3, 6, 4, 5, 1, 7, 0)  # TILE=4096 num_warps=8 num_ctas=1 num_stages=3
        elif M <= 980:
            return (1, 0, 2, 4, 5, 3, 6, 7)  # TILE=2048 num_warps=8 num_ctas=1 num_stages=3
        elif N <= 2200:
            return (3, 4, 5, 2, 6, 0, 1, 7)  # TILE=4096 num_warps=4 num_ctas=1 num_stages=3
        elif M <= 1400:
            return (2, 3, 4, 6, 5, 7, 1, 0)  # TILE=4096 num_warps=8 num_ctas=1 num_stages=3
        else:
            return (4, 3, 6, 5, 2, 0, 7, 1)  # TILE=4096 num_warps=2 num_ctas=1 num_stages=3
    elif N <= 8192:
        if M <= 360:
            if M <= 23:
                if w_ptr_dtype in ("bfloat16",):
                    return (5, 6, 7, 2, 1, 3, 4, 0)  # TILE=8192 num_warps=4 num_ctas=1 num_stages=3
                else:
                    return (6, 5, 7, 1, 2, 3, 4, 0)  # TILE=8192 num_warps=8 num_ctas=1 num_stages=3
            elif N <= 5900:
                return (7, 6, 5, 2, 1, 3, 4, 0)  # TILE=16384 num_warps=8 num_ctas=1 num_stages=3
            else:
                return (6, 5, 7, 2, 1, 3, 4, 0)  # TILE=8192 num_warps=8 num_ctas=1 num_stages=3
        elif N <= 5700:
            return (0, 5, 1, 6, 3, 2, 4, 7)  # TILE=1024 num_warps=4 num_ctas=1 num_stages=3
        elif w_ptr_dtype in ("bfloat16",):
            return (5, 6, 7, 1, 2, 3, 4, 0)  # TILE=8192 num_warps=4 num_ctas=1 num_stages=3
        else:
            return (1, 5, 6, 0, 7, 3, 2, 4)  # TILE=2048 num_warps=8 num_ctas=1 num_stages=3
    elif M <= 1600:
        if M <= 920:
            if M <= 480:
                if M <= 270:
                    return (7, 1, 6, 2, 3, 4, 5, 0)  # TILE=16384 num_warps=8 num_ctas=1 num_stages=3
                else:
                    return (1, 2, 3, 7, 4, 6, 0, 5)  # TILE=2048 num_warps=8 num_ctas=1 num_stages=3
            elif M <= 660:
                return (7, 5, 6, 2, 1, 4, 3, 0)  # TILE=16384 num_warps=8 num_ctas=1 num_stages=3
            else:
                return (1, 0, 7, 2, 3, 4, 5, 6)  # TILE=2048 num_warps=8 num_ctas=1 num_stages=3
        else:
            return (4, 0, 3, 2, 1, 7, 6, 5)  # TILE=4096 num_warps=2 num_ctas=1 num_stages=3
    elif N <= 11300:
        return (1, 2, 7, 3, 4, 6, 5, 0)  # TILE=2048 num_warps=8 num_ctas=1 num_stages=3
    elif M <= 5800:
        return (7, 2, 6, 1, 3, 4, 5, 0)  # TILE=16384 num_warps=8 num_ctas=1 num_stages=3
    else:
        return (5, 7, 6, 2, 4, 3, 1, 0)  # TILE=8192 num_warps=4 num_ctas=1 num_stages=3
