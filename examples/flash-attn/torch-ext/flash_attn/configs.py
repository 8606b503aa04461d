"""The configuration spaces of the forward pass and its defaults. Standard library only.

A configuration is a flat dict of keyword arguments. Those of whole sequences (FORWARD) are for
`tuned.attention_fwd`. `implementation` names the kernel, and the other keys mean to it:

| key | "triton" | "hopper" |
|---|---|---|
| block_m | query rows of a program | 64 x consumers (kept for reading) |
| block_n | keys of a step | keys of a step |
| num_warps | warps of a program | 4 a consumer (kept for reading) |
| num_stages | software pipeline depth | depth of the K and V rings |
| consumers | - | warpgroups that compute, 64 rows each |
| persistent | - | as many programs as fit on the device, else one per tile |

What a key does not mean to an implementation is 0 or False. Those of few queries (DECODE) are for
`tuned.attention_decode`: block_n, num_warps, num_stages, and `waves`, the shares of the keys in
programs a multiprocessor.
"""

from __future__ import annotations

from typing import Any

Config = dict[str, Any]
LARGE = 160_000  # bytes of shared memory: data-centre NVIDIA GPUs have more, the others less


def triton_config(block_m: int, block_n: int, num_warps: int, num_stages: int) -> Config:
    return {
        "implementation": "triton",
        "block_m": block_m,
        "block_n": block_n,
        "num_warps": num_warps,
        "num_stages": num_stages,
        "consumers": 0,
        "persistent": False,
    }


def hopper_config(
    block_n: int, num_stages: int, consumers: int, *, persistent: bool = True
) -> Config:
    return {
        "implementation": "hopper",
        "block_m": 64 * consumers,
        "block_n": block_n,
        "num_warps": 4 * consumers,
        "num_stages": num_stages,
        "consumers": consumers,
        "persistent": persistent,
    }


FORWARD: tuple[Config, ...] = (
    triton_config(32, 64, 4, 3),
    triton_config(64, 64, 4, 3),
    triton_config(128, 64, 4, 3),
    hopper_config(128, 2, 2),
    hopper_config(64, 2, 2),
    hopper_config(64, 2, 2, persistent=False),
    hopper_config(64, 2, 1),
    hopper_config(64, 2, 1, persistent=False),
    hopper_config(128, 2, 1),
    hopper_config(128, 2, 1, persistent=False),
)
"""Candidates for whole sequences. Not all fit every head dim: those are refused when tried."""


def decode_config(block_n: int, num_warps: int, num_stages: int, waves: int) -> Config:
    return {
        "block_n": block_n,
        "num_warps": num_warps,
        "num_stages": num_stages,
        "waves": waves,
    }


DECODE: tuple[Config, ...] = tuple(
    decode_config(*sizes)
    for sizes in (
        (64, 4, 2, 2),
        (64, 4, 3, 1),
        (64, 4, 3, 2),
        (64, 4, 3, 4),
        (64, 4, 4, 2),
        (64, 2, 3, 4),
        (32, 4, 4, 4),
        (128, 4, 2, 2),
        (128, 4, 3, 1),
        (128, 8, 3, 2),
    )
)
"""Candidates for few queries against many keys."""


def is_decoding(rows: int, keys: int) -> bool:
    """Whether so few query rows share a key head that the keys are what there is to divide."""
    return rows <= 64 and keys >= 256


def cdiv(a: int, b: int) -> int:
    """a / b, rounded up. Triton's own costs microseconds."""
    return -(-a // b)


def head_block(dim: int) -> int:
    """Smallest power of two that holds a head, at least 16 (the shortest product)."""
    return max(16, 1 << (dim - 1).bit_length())


def default_forward(
    *, dim: int, rows: int, bounded: bool, hopper: bool, amd: bool, shared_memory: int
) -> Config:
    """A sane configuration where no tuned one is known.

    Args:
        dim: head dimension.
        rows: query rows that share a key head (seqlen_q, times the group where it is packed).
        bounded: rows see keys up to a diagonal only (causal attention).
        hopper: the device is sm_90 and the tensors suit its copy engine.
        amd: the device is an AMD GPU (64-thread warps, 64 KiB of shared memory on gfx942).
        shared_memory: bytes that one program may use.
    """
    block = head_block(dim)
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
        return hopper_config(64, 2, 2)
    if block == 128:
        if bounded:
            small = hopper_config(64, 2, 1)
            return small if rows <= 1024 else hopper_config(128, 2, 2)
        return hopper_config(128, 2, 2)
    if rows >= 1024 or bounded:
        return hopper_config(128, 2, 1)
    return triton_config(64, 64, 4, 3)


def default_decode(*, dim: int, shared_memory: int) -> Config:
    """A sane configuration for few queries where no tuned one is known."""
    return decode_config(64, 4, 2 if shared_memory > LARGE or dim <= 128 else 1, 2)
