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
    {"TILE": 512, "num_warps": 2, "num_ctas": 1, "num_stages": 3},  # 0
    {"TILE": 1024, "num_warps": 4, "num_ctas": 1, "num_stages": 3},  # 1
    {"TILE": 1024, "num_warps": 1, "num_ctas": 1, "num_stages": 3},  # 2
    {"TILE": 2048, "num_warps": 4, "num_ctas": 1, "num_stages": 3},  # 3
    {"TILE": 4096, "num_warps": 4, "num_ctas": 1, "num_stages": 3},  # 4
    {"TILE": 8192, "num_warps": 8, "num_ctas": 1, "num_stages": 3},  # 5
    {"TILE": 16384, "num_warps": 16, "num_ctas": 1, "num_stages": 3},  # 6
    {"TILE": 4096, "num_warps": 16, "num_ctas": 1, "num_stages": 3},  # 7
)


def choose(M, N):
    if N <= 1024:
        if M * N <= 1090000:
            if N <= 214.5:
                if M <= 4092:
                    if M <= 2390:
                        if M <= 2062:
                            return (0, 1, 3, 7, 2, 4, 5, 6)  # TILE=512 num_warps=2 num_ctas=1 num_stages=3
                        else:
                            return (1, 3, 0, 7, 2, 4, 5, 6)  # TILE=1024 num_warps=4 num_ctas=1 num_stages=3
                    else:
                        return (0, 1, 3, 7, 2, 4, 5, 6)  # TILE=512 num_warps=2 num_ctas=1 num_stages=3
                else:
                    return (1, 3, 0, 7, 2, 4, 5, 6)  # TILE=1024 num_warps=4 num_ctas=1 num_stages=3
            elif -(-M // 512) * -(-N // 512) <= 1.4:
                if M <= 15.5:
                    return (0, 1, 3, 2, 7, 4, 5, 6)  # TILE=512 num_warps=2 num_ctas=1 num_stages=3
                else:
                    return (1, 0, 3, 2, 7, 4, 5, 6)  # TILE=1024 num_warps=4 num_ctas=1 num_stages=3
            else:
                return (1, 3, 2, 4, 7, 0, 5, 6)  # TILE=1024 num_warps=4 num_ctas=1 num_stages=3
        else:
            return (2, 3, 1, 4, 0, 5, 7, 6)  # TILE=1024 num_warps=1 num_ctas=1 num_stages=3
    elif N <= 4096:
        if N <= 2048:
            return (3, 4, 7, 5, 1, 0, 2, 6)  # TILE=2048 num_warps=4 num_ctas=1 num_stages=3
        else:
            return (4, 7, 5, 3, 1, 6, 0, 2)  # TILE=4096 num_warps=4 num_ctas=1 num_stages=3
    elif N <= 8230:
        return (5, 6, 7, 3, 4, 1, 2, 0)  # TILE=8192 num_warps=8 num_ctas=1 num_stages=3
    elif M * N <= 9260000:
        if N <= 16600:
            if M <= 560:
                if M <= 0.0333 * N:
                    return (6, 7, 5, 3, 4, 1, 0, 2)  # TILE=16384 num_warps=16 num_ctas=1 num_stages=3
                else:
                    return (7, 6, 4, 3, 5, 1, 0, 2)  # TILE=4096 num_warps=16 num_ctas=1 num_stages=3
            elif M * N <= 8860000:
                return (3, 6, 7, 1, 4, 5, 2, 0)  # TILE=2048 num_warps=4 num_ctas=1 num_stages=3
            else:
                return (5, 6, 3, 7, 1, 4, 2, 0)  # TILE=8192 num_warps=8 num_ctas=1 num_stages=3
        elif N <= 23700:
            return (5, 7, 6, 4, 3, 1, 2, 0)  # TILE=8192 num_warps=8 num_ctas=1 num_stages=3
        elif M <= 0.0025 * N:
            return (6, 5, 7, 4, 3, 1, 2, 0)  # TILE=16384 num_warps=16 num_ctas=1 num_stages=3
        else:
            return (5, 6, 7, 4, 3, 1, 2, 0)  # TILE=8192 num_warps=8 num_ctas=1 num_stages=3
    elif M <= 4200:
        if M <= 262:
            if N <= 3880 * -(-N // 4096):
                return (5, 6, 7, 3, 4, 1, 2, 0)  # TILE=8192 num_warps=8 num_ctas=1 num_stages=3
            else:
                return (6, 5, 7, 4, 3, 1, 2, 0)  # TILE=16384 num_warps=16 num_ctas=1 num_stages=3
        elif M <= 1527:
            if M <= 1219.5:
                if -(-M // 1024) * -(-N // 1024) <= 16.5:
                    return (6, 5, 7, 4, 3, 1, 2, 0)  # TILE=16384 num_warps=16 num_ctas=1 num_stages=3
                else:
                    return (5, 7, 6, 3, 4, 1, 2, 0)  # TILE=8192 num_warps=8 num_ctas=1 num_stages=3
            else:
                return (7, 5, 1, 3, 2, 6, 0, 4)  # TILE=4096 num_warps=16 num_ctas=1 num_stages=3
        elif M <= 0.249 * N:
            if M <= 0.072 * N:
                return (7, 5, 1, 3, 6, 2, 0, 4)  # TILE=4096 num_warps=16 num_ctas=1 num_stages=3
            else:
                return (5, 6, 7, 3, 4, 2, 1, 0)  # TILE=8192 num_warps=8 num_ctas=1 num_stages=3
        else:
            return (6, 5, 7, 4, 3, 2, 1, 0)  # TILE=16384 num_warps=16 num_ctas=1 num_stages=3
    else:
        return (7, 3, 1, 5, 0, 6, 2, 4)  # TILE=4096 num_warps=16 num_ctas=1 num_stages=3
