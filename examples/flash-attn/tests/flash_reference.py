"""Attention in float64, and the error that PyTorch's own attention makes against it."""

from __future__ import annotations

import math

import torch


def mask(queries: int, keys: int, left: int | None, right: int | None) -> torch.Tensor:
    """(queries, keys) bool, by the bounds of `attention.attention_fwd`."""
    rows = torch.arange(queries)[:, None] + keys - queries
    cols = torch.arange(keys)[None, :]
    keep = torch.ones(queries, keys, dtype=torch.bool)
    if left is not None:
        keep &= cols >= rows - left
    if right is not None:
        keep &= cols <= rows + right
    return keep


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: float | None = None,
    left: int | None = None,
    right: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Output and log-sum-exp of (batch, seq, head, dim) tensors: float64, CPU, differentiable."""
    q, k, v = (x.double().cpu() if x.dtype != torch.float64 else x for x in (q, k, v))
    group = q.shape[2] // k.shape[2]
    k, v = k.repeat_interleave(group, 2), v.repeat_interleave(group, 2)
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * (scale or 1 / math.sqrt(q.shape[-1]))
    keep = mask(q.shape[1], k.shape[1], left, right)
    scores = scores.masked_fill(~keep, -math.inf)
    lse = torch.logsumexp(scores, -1)
    weights = torch.exp(scores - torch.where(lse == -math.inf, 0.0, lse)[..., None])
    return torch.einsum("bhqk,bkhd->bqhd", weights, v), lse


def sdpa(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: float | None = None,
    left: int | None = None,
    right: int | None = None,
) -> torch.Tensor:
    """The same by PyTorch in the dtype of the inputs, (batch, seq, head, dim)."""
    keep = None
    if left is not None or right is not None:
        keep = mask(q.shape[1], k.shape[1], left, right).to(q.device)
    out = torch.nn.functional.scaled_dot_product_attention(
        q.transpose(1, 2),
        k.transpose(1, 2),
        v.transpose(1, 2),
        attn_mask=keep,
        scale=scale,
        enable_gqa=q.shape[2] != k.shape[2],
    )
    if keep is not None:
        out = out.masked_fill(~keep.any(-1)[:, None], 0.0)
    return out.transpose(1, 2)


def error(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """Error in the Frobenius norm, relative to the result or 1 % of unit entries; NaN is inf."""
    difference = actual.detach().double().cpu() - expected.detach()
    if torch.isnan(difference).any():
        return math.inf
    return (
        difference.norm() / expected.detach().norm().clamp_min(0.01 * math.sqrt(expected.numel()))
    ).item()
