"""What softmax is tuned for: attention scores, router logits and vocabularies."""

import torch
from softmax import softmax

from kernel_builder.tuning import Case, Sizes, drawn, workload

_FITTED = [
    (m, n, "bfloat16")
    for m, n in (
        *((m, n) for m in (16, 512, 4096, 32768) for n in (64, 256, 1024, 4096)),
        *((m, n) for m in (1, 64, 1024) for n in (32000, 128256)),
        (4096, 16384),
    )
] + [(4096, 1024, "float32"), (1024, 8192, "float32")]
# A block is a power of two: sizes between them fill it partly, and odd ones are not aligned.
_FITTED += [
    (m, n, "bfloat16")
    for m, n in (
        *((4096, 320), (256, 448), (8192, 768), (128, 1536), (16384, 1536)),
        *((2048, 3072), (256, 5120), (16, 50265), (512, 50265)),
        # Between the powers of four.
        *((128, 512), (2048, 512), (16384, 512), (128, 2048), (2048, 2048)),
        *((128, 8192), (2048, 8192), (256, 65536)),
    )
] + [(4096, 1536, "float32")]
_HELD_OUT = [
    (m, n, "bfloat16")
    for m, n in (
        (4, 50257),
        (128, 128),
        (200, 151936),
        (256, 2048),
        (768, 512),
        (1024, 6000),
        (2048, 32000),
        (2048, 640),
        (8192, 2048),
        (16384, 384),
        (65536, 128),
        (16, 100352),
        (32, 8192),
        (1024, 320),
        (4096, 12288),
        (8192, 200),
        *((9080, 1408), (64, 64), (10, 1536), (88, 31488)),
    )
] + [(2048, 2048, "float32"), (512, 1024, "float32")]

# All sizes between: what users call is not round.
_DRAWN = drawn(
    399,
    M=Sizes(1, 32768),
    N=Sizes(64, 131072, multiple=8),
    dtype=["bfloat16"] * 4 + ["float32"],
    keep=lambda M, N, dtype: M * N <= 1 << 27,
)


def forward_and_backward(x, dy):
    """y and its gradient, so that one call launches both kernels."""
    x = x.detach().requires_grad_()
    y = softmax(x)
    return y.detach(), *torch.autograd.grad(y, (x,), dy)


def reference(x, dy):
    """The same in float32 by torch."""
    x = x.detach().float().requires_grad_()
    y = torch.softmax(x, -1)
    return y.detach(), *torch.autograd.grad(y, (x,), dy.float())


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
            "dtype": launch.argument("y_ptr").dtype,
        }
        if launch.kernel.startswith("kernels.softmax_")
        else None
    ),
)
def train(M, N, dtype, device):
    """x and dy, both (M, N)."""
    return tuple(torch.randn(M, N, device=device, dtype=getattr(torch, dtype)) for _ in range(2))
