"""The configuration space of the backward pass and its defaults. Standard library only.

A configuration is a flat dict of keyword arguments of `tuned.attention_bwd`. `implementation` names
the kernels, and the other keys mean to them (what means nothing is 0):

| key | "triton", dK and dV in one kernel, dQ in another | "hopper", all in one kernel |
|---|---|---|
| block_m | query rows of a step, first kernel | query rows of a step |
| block_n | keys of a program, first kernel | keys of a program |
| num_warps | of the first kernel | that compute: a sixteenth of block_n, an eighth over dim 128 |
| num_stages | pipeline depth, first kernel | depth of the Q and dO rings |
| dq_block_m, dq_block_n, dq_num_warps, dq_num_stages | the same of the second kernel | - |
"""

from __future__ import annotations

from typing import Any

from .configs import LARGE, head_block

Config = dict[str, Any]
Tile = tuple[int, int, int, int]  # rows, keys, warps, stages


def triton_config(first: Tile, second: Tile) -> Config:
    names = ("block_m", "block_n", "num_warps", "num_stages")
    return {
        "implementation": "triton",
        **dict(zip(names, first, strict=True)),
        **dict(zip((f"dq_{name}" for name in names), second, strict=True)),
    }


def hopper_config(block_m: int, block_n: int, num_warps: int, num_stages: int) -> Config:
    return {
        "implementation": "hopper",
        "block_m": block_m,
        "block_n": block_n,
        "num_warps": num_warps,
        "num_stages": num_stages,
        "dq_block_m": 0,
        "dq_block_n": 0,
        "dq_num_warps": 0,
        "dq_num_stages": 0,
    }


BACKWARD: tuple[Config, ...] = (
    triton_config((32, 128, 4, 3), (64, 64, 4, 3)),
    triton_config((32, 64, 4, 3), (128, 64, 8, 3)),
    triton_config((32, 32, 4, 3), (128, 32, 8, 2)),
    hopper_config(64, 64, 4, 2),
    hopper_config(64, 128, 8, 2),
    hopper_config(64, 128, 8, 3),
    hopper_config(64, 64, 8, 2),
)
"""Candidates. Not all fit every head dim: those are refused when tried."""


def default_backward(*, dim: int, hopper: bool, rows: int, amd: bool, shared_memory: int) -> Config:
    """A sane configuration where no tuned one is known.

    Args:
        dim: head dimension.
        hopper: the sm_90 kernel may run: the device and the tensors suit it, and dQ need not be
            bit-equal from run to run.
        rows: seqlen_q.
        amd: the device is an AMD GPU.
        shared_memory: bytes that one program may use.
    """
    if hopper and rows >= 128 and head_block(dim) >= 32:
        sizes = {256: (64, 8), 128: (128, 8)}.get(head_block(dim), (64, 4))
        return hopper_config(64, *sizes, 2)
    return triton_config(*_tiles(head_block(dim), amd, shared_memory))


def _tiles(block: int, amd: bool, shared_memory: int) -> tuple[Tile, Tile]:
    if amd:
        size = 64 if block <= 64 else 32
        return (size, size, 4, 1), (size, size, 4, 1)
    large = shared_memory > LARGE
    if block == 256:
        if shared_memory > 200_000:
            return (32, 32, 4, 3), (128, 32, 8, 2)
        if large:
            return (32, 64, 8, 2), (64, 32, 4, 2)
        return (32, 32, 4, 1), (32, 32, 4, 1)
    if block == 128:
        if large:
            return (32, 64, 4, 3), (128, 64, 8, 3)
        return (32, 64, 4, 2), (64, 32, 4, 2)
    return (32, 128, 4, 3 if large else 2), (64, 64, 4, 3 if large else 2)
