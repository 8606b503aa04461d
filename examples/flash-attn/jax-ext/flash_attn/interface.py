"""The public functions: flash-attn's names and argument order, and one in SDPA's layout."""

from . import checks
from .attention import Options, attend


def flash_attn_func(
    q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0,
    alibi_slopes=None, deterministic=False, return_attn_probs=False,
):  # fmt: skip
    """softmax(q @ k^T * softmax_scale) @ v, one head at a time.

    Args:
        q: (batch, seqlen_q, heads, dim), float32, bfloat16 or, but on a TPU, float16; dim 1 to
            256. Static sizes.
        k, v: (batch, seqlen_k, heads_k, dim); heads a multiple of heads_k (grouped-query
            attention).
        dropout_p: only 0.0.
        softmax_scale: factor of the scores, 1/sqrt(dim) where None.
        causal: row i sees keys up to i + seqlen_k - seqlen_q (the mask's corner is at the bottom
            right).
        window_size: only (-1, -1). softcap: only 0.0. alibi_slopes: only None.
        deterministic: accepted; the result is always bit-equal from run to run.
        return_attn_probs: also return the log-sum-exp of each row, (batch, heads, seqlen_q)
            float32, and None where flash-attn has the dropout mask.

    Returns:
        (batch, seqlen_q, heads, dim) in the dtype of q; 0 for rows that see no key. Differentiable
        in q, k and v, and usable under `jax.jit` and `jax.vmap`. On the CPU the kernel runs in
        Pallas's interpret mode.

    Raises:
        TypeError, ValueError: an argument has the wrong type, shape, dtype or device, or an option
            is traced.
        NotImplementedError: an option that is not supported.
    """
    checks.check_options(
        dropout_p=dropout_p, softcap=softcap, alibi_slopes=alibi_slopes, window_size=window_size
    )
    platform = checks.check_arrays(q, k, v, "q k v", 2)
    scale = checks.resolve_scale(softmax_scale, q.shape[3])
    causal = bool(checks.known("causal", causal))
    shift = k.shape[1] - q.shape[1] if causal else None
    options = Options(platform, 2, causal, shift, scale)
    out, lse = attend(q, k, v, options)
    return (out, lse, None) if return_attn_probs else out


def scaled_dot_product_attention(
    query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False
):
    """torch.nn.functional.scaled_dot_product_attention's arguments and layout.

    Args:
        query: (batch, heads, seqlen_q, dim); key, value: (batch, heads_k, seqlen_k, dim).
        attn_mask: only None. dropout_p: only 0.0.
        is_causal: row i sees keys up to i (the mask's corner is at the top left, as in PyTorch).
        enable_gqa: needed where heads and heads_k differ.

    Returns, raises:
        As `flash_attn_func`, in this layout.
    """
    checks.check_options(attn_mask=attn_mask, dropout_p=dropout_p)
    platform = checks.check_arrays(query, key, value, "query key value", 1)
    if query.shape[1] != key.shape[1] and not enable_gqa:
        raise ValueError(
            f"key has {key.shape[1]} heads and query {query.shape[1]}:"
            " pass enable_gqa=True to share them"
        )
    resolved = checks.resolve_scale(scale, query.shape[3], "scale")
    is_causal = bool(checks.known("is_causal", is_causal))
    options = Options(platform, 1, is_causal, 0 if is_causal else None, resolved)
    return attend(query, key, value, options)[0]
