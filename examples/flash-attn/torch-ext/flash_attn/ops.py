"""The custom ops, so that torch.compile, fake tensors and autograd see attention as one step each
way."""

from __future__ import annotations

from typing import Any

import torch

from . import attention, configs, gradient, tuned
from ._ops import add_op_namespace_prefix
from .device import current, facts


def _adjacent(tensor: torch.Tensor) -> torch.Tensor:
    """Gradients arrive in any layout: the kernels want the last dimension adjacent."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def run_forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    softmax_scale: float,
    left: int | None,
    right: int | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """`attention.attention_fwd` with the configuration for these arguments."""
    with current(q):
        rows = tuned.rows_of(q, k)
        if configs.is_decoding(rows, k.shape[1]):
            return tuned.attention_decode(q, k, v, softmax_scale, left, right, rows)
        if tuned.suits(q, k, v, left):
            return tuned.attention_fwd(q, k, v, softmax_scale, right, right is not None)
        config = tuned.default_forward(q, right, hopper_too=False)
        return attention.attention_fwd(q, k, v, softmax_scale, left, right, **config)


def run_varlen_forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    softmax_scale: float,
    left: int | None,
    right: int | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """`attention.attention_varlen_fwd` with the default configuration."""
    device = facts(q)
    config = configs.default_forward(
        dim=q.shape[2],
        rows=128,
        bounded=right is not None,
        hopper=False,
        amd=device.amd,
        shared_memory=device.shared_memory,
    )
    sizes = {key: config[key] for key in ("block_m", "block_n", "num_warps", "num_stages")}
    with current(q):
        return attention.attention_varlen_fwd(
            q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, softmax_scale, left, right, **sizes
        )


@torch.library.custom_op(add_op_namespace_prefix("forward"), mutates_args=())
def forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    softmax_scale: float,
    left: int | None,
    right: int | None,
    deterministic: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """`deterministic` is for the gradients: the forward pass always is."""
    return run_forward(q, k, v, softmax_scale, left, right)


@torch.library.register_fake(add_op_namespace_prefix("forward"))
def _forward_fake(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *rest: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    batch, queries, heads, _ = q.shape
    return torch.empty_like(q), q.new_empty((batch, heads, queries), dtype=torch.float32)


def run_backward(
    do: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    softmax_scale: float,
    left: int | None,
    right: int | None,
    deterministic: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """`gradient.attention_bwd` with the configuration for these arguments."""
    do = _adjacent(do)
    wanted = torch.are_deterministic_algorithms_enabled()
    wanted = wanted and not torch.is_deterministic_algorithms_warn_only_enabled()
    with current(q):
        if (
            not (deterministic or wanted)
            and tuned.suits(q, k, v, left)
            and attention.suits_copy_engine(do)
        ):
            return tuned.attention_bwd(
                do, q, k, v, out, lse, softmax_scale, right, right is not None
            )
        config = tuned.default_backward(q, hopper_too=False)
        return gradient.attention_bwd(do, q, k, v, out, lse, softmax_scale, left, right, **config)


@torch.library.custom_op(add_op_namespace_prefix("backward"), mutates_args=())
def backward(
    do: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    softmax_scale: float,
    left: int | None,
    right: int | None,
    deterministic: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return run_backward(do, q, k, v, out, lse, softmax_scale, left, right, deterministic)


@torch.library.register_fake(add_op_namespace_prefix("backward"))
def _backward_fake(
    do: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *rest: Any,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, torch.Tensor]) -> None:
    q, k, v, *ctx.rest = inputs
    out, lse = output
    ctx.mark_non_differentiable(lse)
    ctx.save_for_backward(q, k, v, out, lse)


def _differentiate(ctx: Any, do: torch.Tensor, _: Any) -> tuple[Any, ...]:
    grads = backward(do, *ctx.saved_tensors, *ctx.rest)
    return (*grads, *(None for _ in ctx.rest))


torch.library.register_autograd(
    add_op_namespace_prefix("forward"), _differentiate, setup_context=_save
)


@torch.library.custom_op(add_op_namespace_prefix("varlen_forward"), mutates_args=())
def varlen_forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    softmax_scale: float,
    left: int | None,
    right: int | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    return run_varlen_forward(
        q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, softmax_scale, left, right
    )


@torch.library.register_fake(add_op_namespace_prefix("varlen_forward"))
def _varlen_forward_fake(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *rest: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty_like(q), q.new_empty((q.shape[1], q.shape[0]), dtype=torch.float32)


@torch.library.custom_op(add_op_namespace_prefix("varlen_backward"), mutates_args=())
def varlen_backward(
    do: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    softmax_scale: float,
    left: int | None,
    right: int | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    with current(q):
        return gradient.attention_varlen_bwd(
            _adjacent(do), q, k, v, out, lse, cu_seqlens_q, cu_seqlens_k, max_seqlen_q,
            max_seqlen_k, softmax_scale, left, right,
        )  # fmt: skip


@torch.library.register_fake(add_op_namespace_prefix("varlen_backward"))
def _varlen_backward_fake(
    do: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *rest: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


def _save_varlen(
    ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, torch.Tensor]
) -> None:
    q, k, v, cu_q, cu_k, *ctx.rest = inputs
    out, lse = output
    ctx.mark_non_differentiable(lse)
    ctx.save_for_backward(q, k, v, out, lse, cu_q, cu_k)


def _differentiate_varlen(ctx: Any, do: torch.Tensor, _: Any) -> tuple[Any, ...]:
    grads = varlen_backward(do, *ctx.saved_tensors, *ctx.rest)
    return (*grads, None, None, *(None for _ in ctx.rest))


torch.library.register_autograd(
    add_op_namespace_prefix("varlen_forward"), _differentiate_varlen, setup_context=_save_varlen
)
