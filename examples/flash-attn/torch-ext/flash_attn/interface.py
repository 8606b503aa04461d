"""The public functions: flash-attn's names and argument order, and one in SDPA's layout."""

from __future__ import annotations

import torch

from . import checks, ops


def _adjacent(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def _attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: float,
    left: int | None,
    right: int | None,
    deterministic: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Through the op for compilation, gradients and tensor subclasses, else directly."""
    q, k, v = _adjacent(q), _adjacent(k), _adjacent(v)
    plain = type(q) is torch.Tensor and type(k) is torch.Tensor and type(v) is torch.Tensor
    gradients = torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad)
    if plain and not gradients and not torch.compiler.is_compiling():
        return ops.run_forward(q, k, v, scale, left, right)
    return ops.forward(q, k, v, scale, left, right, deterministic)


def flash_attn_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor, None]:
    """softmax(q @ k^T * softmax_scale) @ v, one head at a time.

    Args:
        q: (batch, seqlen_q, heads, dim), float16 or bfloat16; dim a multiple of 8 from 16 to 256.
            Any strides.
        k, v: (batch, seqlen_k, heads_k, dim); heads a multiple of heads_k (grouped-query
            attention).
        dropout_p: only 0.0.
        softmax_scale: factor of the scores, 1/sqrt(dim) where None.
        causal: row i sees keys up to i + seqlen_k - seqlen_q (the mask's corner is at the bottom
            right).
        window_size: (left, right) keys that row i sees beside i + seqlen_k - seqlen_q; -1 is no
            bound.
        softcap: only 0.0. alibi_slopes: only None.
        deterministic: make dQ bit-equal from run to run, as all else is anyway; also with
            torch.use_deterministic_algorithms. Slower on Hopper.
        return_attn_probs: also return the log-sum-exp of each row, (batch, heads, seqlen_q)
            float32, without a gradient, and None where flash-attn has the dropout mask.

    Returns:
        (batch, seqlen_q, heads, dim), laid out like q; 0 for rows that see no key.

    Raises:
        TypeError, ValueError: an argument has the wrong type, shape, dtype or device.
        NotImplementedError: an option that is not supported.
    """
    checks.check_options(dropout_p=dropout_p, softcap=softcap, alibi_slopes=alibi_slopes)
    checks.check_tensors(q, k, v, "q k v", 4, 2)
    scale = checks.resolve_scale(softmax_scale, q.shape[-1])
    left, right = checks.resolve_window(causal, window_size)
    out, lse = _attend(q, k, v, scale, left, right, deterministic)
    return (out, lse, None) if return_attn_probs else out


def flash_attn_varlen_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    block_table: torch.Tensor | None = None,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor, None]:
    """`flash_attn_func` for sequences of different lengths that lie one after the other.

    Args:
        q: (total_q, heads, dim); k, v: (total_k, heads_k, dim).
        cu_seqlens_q, cu_seqlens_k: (batch + 1,) int32 bounds of the sequences, rising from 0 to the
            total.
        max_seqlen_q, max_seqlen_k: no sequence is longer; they may be larger than the longest.
        block_table: only None (no paged cache).
        The others: as `flash_attn_func`.

    Returns:
        (total_q, heads, dim), and with return_attn_probs the log-sum-exp (heads, total_q) and None.
    """
    checks.check_options(
        dropout_p=dropout_p, softcap=softcap, alibi_slopes=alibi_slopes, block_table=block_table
    )
    checks.check_tensors(q, k, v, "q k v", 3, 1)
    batch = checks.check_bounds("cu_seqlens_q", cu_seqlens_q, None, q.device)
    checks.check_bounds("cu_seqlens_k", cu_seqlens_k, batch, q.device)
    scale = checks.resolve_scale(softmax_scale, q.shape[-1])
    left, right = checks.resolve_window(causal, window_size)
    out, lse = ops.varlen_forward(
        _adjacent(q),
        _adjacent(k),
        _adjacent(v),
        cu_seqlens_q,
        cu_seqlens_k,
        int(max_seqlen_q),
        int(max_seqlen_k),
        scale,
        left,
        right,
    )
    return (out, lse, None) if return_attn_probs else out


def scaled_dot_product_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """torch.nn.functional.scaled_dot_product_attention's arguments and layout, without a copy.

    Args:
        query: (batch, heads, seqlen_q, dim); key, value: (batch, heads_k, seqlen_k, dim). Any
            strides.
        attn_mask: only None. dropout_p: only 0.0.
        is_causal: row i sees keys up to i (the mask's corner is at the top left, as in PyTorch).
        enable_gqa: needed where heads and heads_k differ.

    Returns:
        (batch, heads, seqlen_q, dim), laid out like query.
    """
    checks.check_options(attn_mask=attn_mask, dropout_p=dropout_p)
    checks.check_tensors(query, key, value, "query key value", 4, 1)
    if query.shape[1] != key.shape[1] and not enable_gqa:
        raise ValueError(
            f"key has {key.shape[1]} heads and query {query.shape[1]}:"
            " pass enable_gqa=True to share them"
        )
    resolved = checks.resolve_scale(scale, query.shape[-1], "scale")
    right = query.shape[2] - key.shape[2] if is_causal else None
    out, _ = _attend(
        query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), resolved, None, right
    )
    return out.transpose(1, 2)
