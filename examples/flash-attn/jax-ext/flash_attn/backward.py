"""Gradients of attention."""

import jax.numpy as jnp
from jax import lax


def gradients(q, k, v, dout, lse, delta, *, options):
    """(dq, dk, dv). The probabilities are computed again from `lse`.

    Args:
        q, k, v, dout: laid out as `options` says.
        lse, delta: (B, Hq, Sq) float32; delta is the row sum of dout * out, less the gradient of
            lse.
    """
    if options.heads_axis == 2:
        q, k, v, dout = (x.swapaxes(1, 2) for x in (q, k, v, dout))
    results = _plain(q, k, v, dout, lse, delta, options)
    return tuple(x.swapaxes(1, 2) if options.heads_axis == 2 else x for x in results)


def _plain(q, k, v, dout, lse, delta, options):
    batch, heads, queries, dim = q.shape
    kv_heads, keys = k.shape[1:3]
    grouped = (batch, kv_heads, heads // kv_heads, queries)
    rows = q.reshape(*grouped, dim).astype(jnp.float32)
    drows = dout.reshape(*grouped, dim).astype(jnp.float32)
    wide_k, wide_v = k.astype(jnp.float32), v.astype(jnp.float32)
    exact = {"precision": lax.Precision.HIGHEST}
    scores = jnp.einsum("bhgqd,bhkd->bhgqk", rows, wide_k, **exact) * options.scale
    lse = lse.reshape(grouped)[..., None]
    seen = jnp.isfinite(lse)
    if options.causal:
        row, key = jnp.arange(queries)[:, None], jnp.arange(keys)[None, :]
        seen &= key <= row + options.shift
    p = jnp.where(seen, jnp.exp(scores - jnp.where(jnp.isfinite(lse), lse, 0.0)), 0.0)
    dp = jnp.einsum("bhgqd,bhkd->bhgqk", drows, wide_v, **exact)
    ds = p * (dp - delta.reshape(grouped)[..., None]) * options.scale
    dq = jnp.einsum("bhgqk,bhkd->bhgqd", ds, wide_k, **exact).reshape(q.shape)
    dk = jnp.einsum("bhgqk,bhgqd->bhkd", ds, rows, **exact)
    dv = jnp.einsum("bhgqk,bhgqd->bhkd", p, drows, **exact)
    return dq.astype(q.dtype), dk.astype(k.dtype), dv.astype(v.dtype)
