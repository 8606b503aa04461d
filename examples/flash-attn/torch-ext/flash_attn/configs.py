"""The configuration space of the forward pass and its defaults. Standard library only.

A configuration is a flat dict of keyword arguments of `attention.attention_fwd`. `implementation`
names the kernel, and the other keys mean to it:

| key | "triton" | "hopper" |
|---|---|---|
| block_m | query rows of a program | 64 x consumers (kept for reading) |
| block_n | keys of a step | keys of a step |
| num_warps | warps of a program | - |
| num_stages | software pipeline depth | depth of the K and V rings |
| consumers | - | warpgroups that compute, 64 rows each |
| turns | - | consumers issue products in turn: 0 no, 1 handing over after both, 2 after the first |
| persistent | - | one program per SM, else one per tile |
| splits | shares of the keys, 0 = by occupancy | - |
"""

from __future__ import annotations

from typing import Any

Config = dict[str, Any]
LARGE = 160_000  # bytes of shared memory: data-centre NVIDIA GPUs have more, the others less


def triton_config(
    block_m: int, block_n: int, num_warps: int, num_stages: int, splits: int = 1
) -> Config:
    return {
        "implementation": "triton",
        "block_m": block_m,
        "block_n": block_n,
        "num_warps": num_warps,
        "num_stages": num_stages,
        "splits": splits,
    }


def hopper_config(
    block_n: int,
    num_stages: int,
    consumers: int,
    turns: int,
    persistent: bool = True,
) -> Config:
    return {
        "implementation": "hopper",
        "block_m": 64 * consumers,
        "block_n": block_n,
        "num_stages": num_stages,
        "consumers": consumers,
        "turns": turns,
        "persistent": persistent,
    }


FORWARD: tuple[Config, ...] = (
    *(
        triton_config(*sizes)
        for sizes in (
            (64, 64, 4, 3),
            (64, 128, 4, 3),
            (128, 64, 4, 3),
            (128, 64, 8, 3),
            (128, 128, 8, 3),
            (128, 128, 8, 2),
            (64, 32, 4, 2),
        )
    ),
    *(
        hopper_config(*sizes)
        for sizes in (
            (128, 2, 2, 1),
            (128, 2, 2, 0),
            (128, 2, 2, 1, False),
            (128, 3, 2, 1),
            (64, 2, 2, 1),
            (64, 2, 2, 1, False),
            (64, 4, 3, 1),
            (64, 4, 3, 0),
            (64, 2, 1, 0),
            (64, 2, 1, 0, False),
            (128, 2, 1, 0),
            (128, 2, 1, 0, False),
        )
    ),
)
"""Candidates for tuning. Not all fit every head dim: those are dropped when they are tried."""


def head_block(dim: int) -> int:
    """Smallest power of two that holds a head, at least 16 (the shortest product)."""
    return max(16, 1 << (dim - 1).bit_length())


def default_forward(
    *, dim: int, rows: int, keys: int, bounded: bool, hopper: bool, amd: bool, shared_memory: int
) -> Config:
    """A sane configuration where no tuned one is known.

    Args:
        dim: head dimension.
        rows: query rows that share a key head (seqlen_q, times the group where it is packed).
        keys: seqlen_k.
        bounded: rows see keys up to a diagonal only (causal attention).
        hopper: the device is sm_90 and the tensors suit its copy engine.
        amd: the device is an AMD GPU (64-thread warps, 64 KiB of shared memory on gfx942).
        shared_memory: bytes that one program may use.
    """
    block = head_block(dim)
    if rows <= 64 and keys >= 256:
        return triton_config(16 if rows <= 16 else 64, 64, 4, 2, splits=0)
    if hopper and rows >= 128:
        return _default_hopper(block, rows, bounded)
    if amd:
        return triton_config(128 if block <= 128 else 64, 64 if block <= 64 else 32, 4, 1)
    large = shared_memory > LARGE
    if block == 256:
        return triton_config(64, 64 if large else 32, 4, 2 if large else 1)
    if block == 128:
        return triton_config(128, 64, 8, 3) if large else triton_config(64, 64, 4, 2)
    return triton_config(128, 64, 4, 3)


def _default_hopper(block: int, rows: int, bounded: bool) -> Config:
    """What won most often on an H200 (NOTES.md)."""
    if block == 256:
        return hopper_config(64, 2, 2, 0)
    if block == 128:
        if bounded:
            return hopper_config(64, 2, 1, 0) if rows <= 1024 else hopper_config(128, 2, 2, 0)
        return hopper_config(128, 2, 2, 1)
    if rows >= 1024 or bounded:
        return hopper_config(128, 2, 1, 0)
    return triton_config(64, 64, 4, 3)


def default_backward(*, dim: int, amd: bool, shared_memory: int) -> tuple[Config, Config]:
    """Tiles of the (dK and dV, dQ) kernels; block_m counts query rows, block_n keys."""
    block = head_block(dim)
    if amd:
        size = 64 if block <= 64 else 32
        return _tile(size, size, 4, 1), _tile(size, size, 4, 1)
    large = shared_memory > LARGE
    if block == 256:
        if shared_memory > 200_000:
            return _tile(32, 32, 4, 3), _tile(128, 32, 8, 2)
        if large:
            return _tile(32, 64, 8, 2), _tile(64, 32, 4, 2)
        return _tile(32, 32, 4, 1), _tile(32, 32, 4, 1)
    if block == 128:
        if large:
            return _tile(32, 64, 4, 3), _tile(128, 64, 8, 3)
        return _tile(32, 64, 4, 2), _tile(64, 32, 4, 2)
    return _tile(32, 128, 4, 3 if large else 2), _tile(64, 64, 4, 3 if large else 2)


def _tile(block_m: int, block_n: int, num_warps: int, num_stages: int) -> Config:
    return {
        "block_m": block_m,
        "block_n": block_n,
        "num_warps": num_warps,
        "num_stages": num_stages,
    }
