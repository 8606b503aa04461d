"""What RMS norm is tuned for: rows of hidden states, from one decoded token to a training batch."""

import torch
from rms_norm import rms_norm

from kernel_builder.tuning import Case, Sizes, drawn, workload

# Hidden sizes of common models, and row counts from decoding to training.
_FITTED = [
    *((m, n, "bfloat16") for m in (1, 32, 512, 4096, 16384) for n in (768, 2048, 4096, 8192)),
    (64, 16384, "bfloat16"),
    (2048, 16384, "bfloat16"),
    (1024, 4096, "float32"),
    (8192, 2048, "float16"),
    # A block is a power of two, so sizes between them fill it partly.
    *(
        (m, n, "bfloat16")
        for m, n in ((8, 2560), (2048, 2560), (16, 7168), (256, 7168), (8192, 7168))
    ),
    *((m, n, "bfloat16") for m, n in ((2048, 5376), (1024, 1152), (256, 10240), (4096, 10240))),
    (1024, 6656, "float32"),
    # Between the powers of four.
    *((m, n, "bfloat16") for m in (128, 2048) for n in (2048, 4096, 8192)),
    (8, 4096, "bfloat16"),
    (8192, 1024, "bfloat16"),
]
_HELD_OUT = [
    (m, n, "bfloat16")
    for m, n in ((4, 5120), (16, 3072), (128, 1024), (256, 6144), (768, 12288), (1024, 5120))
] + [
    (m, n, dtype)
    for m, n, dtype in (
        (2048, 3584, "bfloat16"),
        (3000, 5120, "bfloat16"),
        (8192, 3072, "bfloat16"),
        (12288, 6144, "bfloat16"),
        (2048, 8192, "float32"),
        (4096, 1536, "float16"),
        (32, 1536, "bfloat16"),
        (64, 7168, "bfloat16"),
        (512, 2560, "bfloat16"),
        (4096, 6656, "bfloat16"),
        (512, 4096, "float32"),
        *((m, n, "bfloat16") for m, n in ((1864, 10240), (14336, 6144), (5976, 5632), (2, 11520))),
    )
]

# All sizes between: what users call is not round.
_DRAWN = drawn(
    399,
    M=Sizes(1, 16384),
    N=Sizes(256, 16384, multiple=64),
    dtype=["bfloat16"] * 4 + ["float32"],
)


def forward_and_backward(x, weight, dy):
    """y and both gradients, so that one call launches both kernels."""
    x, weight = x.detach().requires_grad_(), weight.detach().requires_grad_()
    y = rms_norm(x, weight)
    return y.detach(), *torch.autograd.grad(y, (x, weight), dy)


def reference(x, weight, dy):
    """The same in float32 by torch."""
    x, weight = (t.detach().float().requires_grad_() for t in (x, weight))
    y = torch.nn.functional.rms_norm(x, weight.shape, weight, 1e-6)
    return y.detach(), *torch.autograd.grad(y, (x, weight), dy.float())


@workload(
    call=forward_and_backward,
    reference=reference,
    tolerance=2e-2,
    cases=[
        *(Case(M=m, N=n, dtype=dtype) for m, n, dtype in _FITTED),
        *(Case(M=m, N=n, dtype=dtype, held_out=True) for m, n, dtype in _HELD_OUT),
        *_DRAWN,
    ],
    launches=lambda launch: (
        {
            "M": launch.argument("M").value,
            "N": launch.argument("N").value,
            "dtype": launch.argument("x_ptr").dtype,
        }
        if launch.kernel.startswith("kernels.rms_norm_")
        else None
    ),
)
def train(M, N, dtype, device):
    """x (M, N), weight (N,) and dy (M, N)."""
    x, dy = (torch.randn(M, N, device=device, dtype=getattr(torch, dtype)) for _ in range(2))
    return x, torch.randn(N, device=device, dtype=x.dtype), dy
