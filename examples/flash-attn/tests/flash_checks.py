"""Forward, log-sum-exp and gradients against float64, with at most twice PyTorch's own error."""

from __future__ import annotations

import math
from types import ModuleType

import flash_reference as reference
import torch

# The interpreter computes in numpy, PyTorch's CPU attention partly in float32: this floor is fp16's
# own rounding.
FLOOR = {torch.float16: 4e-4, torch.bfloat16: 3e-3}


def tensors(
    batch: int,
    queries: int,
    keys: int,
    heads: int,
    heads_k: int,
    dim: int,
    dtype: torch.dtype,
    device: str,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    shapes = (
        (batch, queries, heads, dim),
        (batch, keys, heads_k, dim),
        (batch, keys, heads_k, dim),
    )
    return tuple(torch.randn(shape, device=device).to(dtype) for shape in shapes)


DTYPES = (torch.float16, torch.bfloat16)


def check(actual: torch.Tensor, peer: torch.Tensor, expected: torch.Tensor) -> None:
    bound = 2 * reference.error(peer, expected) + FLOOR[actual.dtype]
    assert reference.error(actual, expected) <= bound


def run(
    kernel: ModuleType,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = False,
    window: tuple[int, int] = (-1, -1),
    scale: float | None = None,
    backward: bool = True,
) -> None:
    """Forward, log-sum-exp and gradients against float64."""
    left = None if window[0] < 0 else window[0]
    right = 0 if causal else (None if window[1] < 0 else window[1])
    inputs = [
        x.detach().clone(memory_format=torch.preserve_format).requires_grad_(backward)
        for x in (q, k, v)
    ]
    out, lse, _ = kernel.flash_attn_func(
        *inputs, causal=causal, window_size=window, softmax_scale=scale, return_attn_probs=True
    )
    exact_in = [x.detach().double().cpu().requires_grad_(backward) for x in (q, k, v)]
    exact, exact_lse = reference.attention(*exact_in, scale, left, right)
    peer_in = [x.detach().clone().requires_grad_(backward) for x in (q, k, v)]
    peer = reference.sdpa(*peer_in, scale, left, right)
    check(out, peer, exact)
    assert torch.equal(lse.cpu() == -math.inf, exact_lse.detach() == -math.inf)
    finite = exact_lse != -math.inf
    assert (
        (lse.cpu().double() - exact_lse)[finite].abs().max().item() < 5e-3 if finite.any() else True
    )
    if not backward:
        return
    upstream = torch.randn_like(exact).to(q.dtype)
    out.backward(upstream.to(q.device))
    exact.backward(upstream.double())
    peer.backward(upstream.to(q.device))
    for ours, theirs, truth in zip(inputs, peer_in, exact_in, strict=True):
        assert not torch.isnan(ours.grad).any()
        seen = torch.nan_to_num(theirs.grad)  # PyTorch gives NaN where a row sees no key
        check(ours.grad, seen, truth.grad)
