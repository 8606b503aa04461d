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
SOURCE = "sha256:762a2a0d367e9bee685a20b89d38dd6dd1c213a43a4f8b0386a309c4015862d8"
FEATURES = {
    "M": "int",
    "N": "int",
}
CONFIGS = (
    {"TILE": 2048, "num_warps": 4, "num_ctas": 1, "num_stages": 3},  # 0
    {"TILE": 512, "num_warps": 4, "num_ctas": 1, "num_stages": 3},  # 1
    {"TILE": 2048, "num_warps": 8, "num_ctas": 1, "num_stages": 3},  # 2
    {"TILE": 1024, "num_warps": 2, "num_ctas": 1, "num_stages": 3},  # 3
    {"TILE": 1024, "num_warps": 1, "num_ctas": 1, "num_stages": 3},  # 4
    {"TILE": 4096, "num_warps": 4, "num_ctas": 1, "num_stages": 3},  # 5
    {"TILE": 8192, "num_warps": 8, "num_ctas": 1, "num_stages": 3},  # 6
    {"TILE": 16384, "num_warps": 16, "num_ctas": 1, "num_stages": 3},  # 7
)


def choose(M, N):
    if N <= 1024:
        if M <= 1470:
            if N <= 512:
                if N <= 68:
                    return (0, 2, 3, 1, 4, 5, 6, 7)  # TILE=2048 num_warps=4 num_ctas=1 num_stages=3
                elif N <= 264:
                    if N <= 252:
                        return (1, 3, 2, 0, 4, 5, 6, 7)  # TILE=512 num_warps=4 num_ctas=1 num_stages=3
                    else:
                        return (2, 0, 3, 1, 4, 5, 6, 7)  # TILE=2048 num_warps=8 num_ctas=1 num_stages=3
                else:
                    return (1, 3, 2, 0, 4, 5, 6, 7)  # TILE=512 num_warps=4 num_ctas=1 num_stages=3
            elif M <= 100:
                return (3, 4, 0, 2, 5, 1, 6, 7)  # TILE=1024 num_warps=2 num_ctas=1 num_stages=3
            else:
                return (2, 4, 0, 3, 5, 1, 6, 7)  # TILE=2048 num_warps=8 num_ctas=1 num_stages=3
        elif M <= 4400:
            if N <= 580:
                if N <= 400:
                    if N <= 290:
                        return (3, 2, 0, 1, 4, 5, 6, 7)  # TILE=1024 num_warps=2 num_ctas=1 num_stages=3
                    else:
                        return (4, 0, 3, 5, 2, 6, 7, 1)  # TILE=1024 num_warps=1 num_ctas=1 num_stages=3
                else:
                    return (3, 0, 4, 2, 5, 1, 6, 7)  # TILE=1024 num_warps=2 num_ctas=1 num_stages=3
            else:
                return (4, 3, 0, 5, 2, 6, 1, 7)  # TILE=1024 num_warps=1 num_ctas=1 num_stages=3
        elif N <= 75:
            return (0, 3, 2, 4, 5, 6, 7, 1)  # TILE=2048 num_warps=4 num_ctas=1 num_stages=3
        else:
            return (4, 3, 0, 5, 2, 6, 1, 7)  # TILE=1024 num_warps=1 num_ctas=1 num_stages=3
    elif N <= 4096:
        if N <= 2048:
            if M <= 6.3:
                return (2, 0, 5, 6, 3, 1, 7, 4)  # TILE=2048 num_warps=8 num_ctas=1 num_stages=3
            elif M <= 8200:
                if M <= 2048:
                    return (0, 5, 2, 6, 3, 4, 1, 7)  # TILE=2048 num_warps=4 num_ctas=1 num_stages=3
                else:
                    return (3, 4, 0, 5, 2, 1, 6, 7)  # TILE=1024 num_warps=2 num_ctas=1 num_stages=3
            else:
                return (5, 0, 6, 4, 7, 3, 2, 1)  # TILE=4096 num_warps=4 num_ctas=1 num_stages=3
        else:
            return (5, 6, 2, 0, 7, 3, 4, 1)  # TILE=4096 num_warps=4 num_ctas=1 num_stages=3
    elif N <= 8192:
        return (6, 7, 2, 0, 5, 3, 4, 1)  # TILE=8192 num_warps=8 num_ctas=1 num_stages=3
    elif N <= 57000:
        if N <= 36000:
            if N <= 24000:
                if N <= 16384:
                    return (7, 6, 2, 0, 5, 3, 1, 4)  # TILE=16384 num_warps=16 num_ctas=1 num_stages=3
                else:
                    return (6, 7, 2, 0, 5, 3, 1, 4)  # TILE=8192 num_warps=8 num_ctas=1 num_stages=3
            else:
                return (7, 6, 5, 2, 0, 3, 4, 1)  # TILE=16384 num_warps=16 num_ctas=1 num_stages=3
        elif M <= 47:
            return (7, 6, 2, 5, 0, 3, 1, 4)  # TILE=16384 num_warps=16 num_ctas=1 num_stages=3
        else:
            return (6, 7, 2, 0, 5, 3, 4, 1)  # TILE=8192 num_warps=8 num_ctas=1 num_stages=3
    elif M <= 380:
        return (7, 6, 5, 2, 0, 3, 4, 1)  # TILE=16384 num_warps=16 num_ctas=1 num_stages=3
    else:
        return (6, 7, 0, 2, 5, 3, 4, 1)  # TILE=8192 num_warps=8 num_ctas=1 num_stages=3
