"""L2 normalisation of fla-core, forward and backward: `l2norm_fwd_kernel`, `l2norm_bwd_kernel`."""

import torch
from fla.modules.norm.l2norm import l2norm_bwd, l2norm_fwd

from benchmarks.subjects.shapes import rows_and_columns
from kernel_builder.tuning import Sizes, drawn, workload

_FITTED = [(m, n) for m in (2048, 16384, 131072, 524288) for n in (64, 128, 192, 256, 512)] + [
    (256, 64),
    (256, 256),
    (1048576, 64),
    (1048576, 128),
]
_HELD_OUT = [
    (512, 128), (1000, 96), (4096, 64), (4096, 384), (8192, 160), (32768, 128),
    (32768, 320), (65536, 96), (65536, 256), (262144, 64), (262144, 128), (300000, 192),
]  # fmt: skip
_EPS = 1e-6
_DRAWN = drawn(48, M=Sizes(256, 1 << 20), N=Sizes(32, 512, multiple=32), dtype=["bfloat16"])


def forward_and_backward(x, dy):
    """y and dx."""
    y, rstd = l2norm_fwd(x, _EPS)
    return y, l2norm_bwd(y, rstd, dy, _EPS)


def reference(x, dy):
    """The same in float32 by torch."""
    x = x.detach().float().requires_grad_()
    y = x * torch.rsqrt((x * x).sum(-1, keepdim=True) + _EPS)
    return y.detach(), *torch.autograd.grad(y, (x,), dy.float())


@workload(
    call=forward_and_backward,
    reference=reference,
    tolerance=3e-2,
    cases=[*rows_and_columns(_FITTED, _HELD_OUT), *_DRAWN],
)
def l2norm(M, N, dtype, device):
    """x and dy, both (M, N): tokens times heads, head dimension."""
    return tuple(torch.randn(M, N, device=device, dtype=getattr(torch, dtype)) for _ in range(2))
