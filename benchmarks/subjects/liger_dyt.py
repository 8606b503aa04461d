"""Dynamic tanh of liger-kernel, forward and backward: `_dyt_fwd_kernel`, `_dyt_bwd_kernel`."""

import torch
from liger_kernel.ops.dyt import liger_dyt_bwd, liger_dyt_fwd

from benchmarks.subjects.shapes import rows_and_columns
from kernel_builder.tuning import Sizes, drawn, workload

_FITTED = [(m, n) for m in (64, 512, 4096, 16384) for n in (768, 1536, 2048, 4096, 8192)] + [
    (1, 4096),
    (8, 8192),
    (2048, 12288),
    (1024, 16384),
]
_HELD_OUT = [
    (16, 3072), (32, 5120), (128, 2560), (256, 4096), (777, 2048), (1024, 1024),
    (2048, 3584), (2048, 6144), (3000, 5120), (8192, 1280), (8192, 3072), (12288, 4096),
]  # fmt: skip
_DRAWN = drawn(
    300,
    M=Sizes(1, 16384),
    N=Sizes(512, 16384, multiple=64),
    dtype=["bfloat16"],
    keep=lambda M, N, **_: (M, N) not in _FITTED,
)


def forward_and_backward(x, alpha, gamma, beta, dy):
    """y, dx, dalpha, dgamma, dbeta."""
    y = liger_dyt_fwd(x, alpha, gamma, beta)
    return y, *liger_dyt_bwd(dy, x, alpha, gamma, beta)


def reference(x, alpha, gamma, beta, dy):
    """The same in float32 by torch."""
    leaves = [t.detach().float().requires_grad_() for t in (x, alpha, gamma, beta)]
    y = torch.tanh(leaves[1] * leaves[0]) * leaves[2] + leaves[3]
    return y.detach(), *torch.autograd.grad(y, leaves, dy.float())


@workload(
    call=forward_and_backward,
    reference=reference,
    tolerance=3e-2,
    cases=[*rows_and_columns(_FITTED, _HELD_OUT), *_DRAWN],
)
def dyt(M, N, dtype, device):
    """x (M, N), alpha (1,), gamma (N,), beta (N,), dy (M, N)."""
    dtype = getattr(torch, dtype)
    x, dy = (torch.randn(M, N, device=device, dtype=dtype) for _ in range(2))
    gamma, beta = (torch.randn(N, device=device, dtype=dtype) for _ in range(2))
    return x, torch.full((1,), 0.5, device=device, dtype=dtype), gamma, beta, dy
