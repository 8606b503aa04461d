"""Which configuration tuned.attention_bwd runs with on NVIDIA H200.

Generated from measurements, which lie beside it. Read as data, never executed.
"""

SCHEMA = 1
KERNEL = "tuned.attention_bwd"
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
SOURCE = "sha256:eda734c249d52caf85f572f822a8d6a63002bbbc50abb074dc438a4bf4047fff"
FEATURES = {
    "do_dim3": "int",
}
CONFIGS = (
    {"implementation": "hopper", "block_m": 64, "block_n": 64, "num_warps": 4, "num_stages": 2, "dq_block_m": 0, "dq_block_n": 0, "dq_num_warps": 0, "dq_num_stages": 0},  # 0
    {"implementation": "hopper", "block_m": 64, "block_n": 128, "num_warps": 8, "num_stages": 2, "dq_block_m": 0, "dq_block_n": 0, "dq_num_warps": 0, "dq_num_stages": 0},  # 1
    {"implementation": "hopper", "block_m": 64, "block_n": 64, "num_warps": 8, "num_stages": 2, "dq_block_m": 0, "dq_block_n": 0, "dq_num_warps": 0, "dq_num_stages": 0},  # 2
)


def choose(do_dim3):
    if do_dim3 <= 128:
        if do_dim3 <= 91:
            return (0, 1, 2)  # implementation=hopper block_m=64 block_n=64 num_warps=4 num_stages=2 dq_block_m=0 dq_block_n=0 dq_num_warps=0 dq_num_stages=0
        else:
            return (1, 0, 2)  # implementation=hopper block_m=64 block_n=128 num_warps=8 num_stages=2 dq_block_m=0 dq_block_n=0 dq_num_warps=0 dq_num_stages=0
    else:
        return (2, 1, 0)  # implementation=hopper block_m=64 block_n=64 num_warps=8 num_stages=2 dq_block_m=0 dq_block_n=0 dq_num_warps=0 dq_num_stages=0
