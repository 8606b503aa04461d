"""Short ways to write trees."""

from __future__ import annotations

from kernelhub.formats.tree import DeviceFacts, Tree

ANY_HASH = "sha256:" + "0" * 64
H200 = DeviceFacts(
    name="NVIDIA H200", arch="sm_90", sm_count=132, memory=150_754_820_096, shared_memory=232_448
)
H100 = DeviceFacts(
    name="NVIDIA H100", arch="sm_90", sm_count=132, memory=85_000_000_000, shared_memory=232_448
)
L4 = DeviceFacts(
    name="NVIDIA L4", arch="sm_89", sm_count=58, memory=24_000_000_000, shared_memory=101_376
)
B200 = DeviceFacts(
    name="NVIDIA B200", arch="sm_100", sm_count=148, memory=190_000_000_000, shared_memory=232_448
)


def config(block: int, warps: int = 4, stages: int = 3) -> dict:
    """A flat configuration of the sample kernels."""
    return {"BLOCK": block, "num_warps": warps, "num_ctas": 1, "num_stages": stages}


def tree(kernel: str, root, *configs, features=None, device=H200, source=ANY_HASH) -> Tree:
    """A tree on `n` unless `features` says otherwise."""
    return Tree(
        kernel=kernel,
        device=device,
        tools={"triton": "3.6.0"},
        source_hash=source,
        features={"n": "int"} if features is None else features,
        configs=configs,
        root=root,
    )
