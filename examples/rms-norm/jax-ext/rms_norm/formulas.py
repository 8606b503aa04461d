"""The arithmetic of both backends, on a block of rows, all of it in float32.

`y = x * rstd * w` with `rstd = 1 / sqrt(mean(x^2) + eps)` (Zhang and Sennrich, "Root Mean Square
Layer Normalization", 2019). Rows of a block may be longer than `columns`: then the rest is 0.
"""

import jax.numpy as jnp
from jax import lax


def _rstd(x, eps, columns):
    return lax.rsqrt(jnp.sum(x * x, axis=1, keepdims=True) / columns + eps)


def forward(x, w, *, eps, columns):
    """(rows, N) and (1, N) to y, float32."""
    x = x.astype(jnp.float32)
    return x * _rstd(x, eps, columns) * w.astype(jnp.float32)


def backward(x, w, dy, *, eps, columns):
    """dx (rows, N) and dw (1, N), float32.

    With xhat = x * rstd: dx = rstd * (w*dy - xhat * mean(w*dy*xhat)), dw = sum(dy*xhat) over rows.
    """
    x, w, dy = (a.astype(jnp.float32) for a in (x, w, dy))
    rstd = _rstd(x, eps, columns)
    xhat, g = x * rstd, dy * w
    mean = jnp.sum(g * xhat, axis=1, keepdims=True) / columns
    return rstd * (g - xhat * mean), jnp.sum(dy * xhat, axis=0, keepdims=True)
