"""The functions that decision trees choose configurations for, and where no tree speaks, defaults.

They take what any of their configurations can run with, so that a tree need not know the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from . import backward_configs, configs, gradient
from ._tunable import tunable
from .attention import attention_fwd as attend
from .attention import hopper, packs_heads, suit_copy_engine
from .device import facts


def suits(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, left: int | None) -> bool:
    """Whether `attention_fwd` takes these arguments: no left bound, tensors that TMA can read."""
    return left is None and suit_copy_engine(q, k, v)


def default_forward(
    q: torch.Tensor, right: int | None, *, hopper_too: bool = True
) -> configs.Config:
    """The default configuration for (batch, seq, heads, dim) queries on their device."""
    device = facts(q)
    return configs.default_forward(
        dim=q.shape[3],
        rows=q.shape[1],
        bounded=right is not None,
        hopper=hopper_too and device.hopper and hopper is not None,
        amd=device.amd,
        shared_memory=device.shared_memory,
    )


def _default_forward(arguments: Mapping[str, Any]) -> configs.Config:
    return default_forward(arguments["q"], arguments["right"])


def _default_decode(arguments: Mapping[str, Any]) -> configs.Config:
    q = arguments["q"]
    return configs.default_decode(dim=q.shape[3], shared_memory=facts(q).shared_memory)


@tunable(configs=configs.FORWARD, default=_default_forward, key=["causal"])
def attention_fwd(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    softmax_scale: float,
    right: int | None,
    causal: bool,
    *,
    implementation: str,
    block_m: int,
    block_n: int,
    num_warps: int,
    num_stages: int,
    consumers: int,
    persistent: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """`attention.attention_fwd` of tensors that `suits`; `causal` says that `right` is given."""
    return attend(
        q, k, v, softmax_scale, None, right, implementation=implementation, block_m=block_m,
        block_n=block_n, num_warps=num_warps, num_stages=num_stages, consumers=consumers,
        persistent=persistent,
    )  # fmt: skip


@tunable(configs=configs.DECODE, default=_default_decode, key=["rows"])
def attention_decode(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    softmax_scale: float,
    left: int | None,
    right: int | None,
    rows: int,
    *,
    block_n: int,
    num_warps: int,
    num_stages: int,
    waves: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """`attention.attention_fwd` where `configs.is_decoding`; `rows` share a key head."""
    return attend(
        q, k, v, softmax_scale, left, right, block_m=16 if rows <= 16 else 64, block_n=block_n,
        num_warps=num_warps, num_stages=num_stages, splits=0, waves=waves,
    )  # fmt: skip


def rows_of(q: torch.Tensor, k: torch.Tensor) -> int:
    """How many query rows share a key head and a block."""
    return q.shape[1] * (q.shape[2] // k.shape[2] if packs_heads(q, k) else 1)


def default_backward(q: torch.Tensor, *, hopper_too: bool = True) -> configs.Config:
    """The default configuration of the gradients for (batch, seq, heads, dim) queries."""
    device = facts(q)
    return backward_configs.default_backward(
        dim=q.shape[3],
        rows=q.shape[1],
        hopper=hopper_too and device.hopper and gradient.hopper_backward is not None,
        amd=device.amd,
        shared_memory=device.shared_memory,
    )


def _default_backward(arguments: Mapping[str, Any]) -> configs.Config:
    return default_backward(arguments["q"])


@tunable(configs=backward_configs.BACKWARD, default=_default_backward, key=["causal"])
def attention_bwd(
    do: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    softmax_scale: float,
    right: int | None,
    causal: bool,
    *,
    implementation: str,
    block_m: int,
    block_n: int,
    num_warps: int,
    num_stages: int,
    dq_block_m: int,
    dq_block_n: int,
    dq_num_warps: int,
    dq_num_stages: int,
) -> gradient.Gradients:
    """`gradient.attention_bwd` of tensors that `suits`, where dQ need not be bit-equal from run to
    run; `causal` says that `right` is given."""
    return gradient.attention_bwd(
        do, q, k, v, out, lse, softmax_scale, None, right, implementation=implementation,
        block_m=block_m, block_n=block_n, num_warps=num_warps, num_stages=num_stages,
        dq_block_m=dq_block_m, dq_block_n=dq_block_n, dq_num_warps=dq_num_warps,
        dq_num_stages=dq_num_stages,
    )  # fmt: skip
