"""Shapes of linear layers: a decoded token, a small batch, a prompt; common layer sizes."""

import torch

from benchmarks.subjects.matmul import matmul
from kernel_builder.tuning import Case, Sizes, drawn, workload

_LAYERS = ((4096, 4096), (11008, 4096), (4096, 11008), (1024, 8192))
_FITTED = [(m, n, k) for m in (16, 128, 512, 1024, 2048, 4096) for n, k in _LAYERS]
_FITTED += [  # tiles that do not fill whole waves of the device
    (32, 11008, 4096), (64, 6144, 4096), (192, 5120, 5120), (256, 11008, 4096), (320, 8192, 4096),
    (640, 5120, 5120), (896, 6144, 4096), (1280, 4096, 4096), (1792, 5120, 5120),
    (2560, 2560, 8192),
    (32, 4096, 4096), (64, 11008, 4096), (96, 8192, 4096), (256, 4096, 11008), (768, 4096, 4096),
    (1536, 11008, 4096),
]  # fmt: skip
_HELD_OUT = [
    (1, 4096, 4096), (32, 5120, 5120), (64, 4096, 4096), (64, 13824, 5120),
    (256, 4096, 4096), (256, 8192, 1024), (384, 6144, 4096), (768, 5120, 5120),
    (1536, 4096, 4096), (3000, 4096, 4096), (3072, 2048, 8192), (8192, 4096, 4096),
    (8, 6144, 4096), (48, 4096, 4096), (448, 11008, 4096), (1152, 5120, 5120), (5000, 2560, 8192),
    (24, 5120, 5120), (200, 5120, 5120), (6144, 4096, 4096),
]  # fmt: skip
_DRAWN = drawn(
    300,
    M=Sizes(1, 8192),
    N=Sizes(1024, 16384, multiple=128),
    K=Sizes(1024, 16384, multiple=128),
    keep=lambda M, N, K: M * N * K <= 1 << 38,
)


@workload(
    call=matmul,
    reference=lambda a, b: a.float() @ b.float(),
    tolerance=2e-2,
    cases=[
        *(Case(M=m, N=n, K=k) for m, n, k in _FITTED),
        *(Case(M=m, N=n, K=k, held_out=True) for m, n, k in _HELD_OUT),
        *_DRAWN,
    ],
)
def linear(M, N, K, device):
    """a (M, K) and b (K, N) in bfloat16."""
    a = torch.randn(M, K, device=device, dtype=torch.bfloat16)
    return a, torch.randn(K, N, device=device, dtype=torch.bfloat16)
