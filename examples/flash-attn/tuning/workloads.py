"""What attention is tuned for: whole sequences, full and causal, and decoding against long caches.

The held-out whole sequences are the ten of the benchmark (`benchmarks/attention_shapes.py`); the
fitted ones hold its nineteen, and more between and beyond them.
"""

import torch
import torch.nn.functional as F
from flash_attn import scaled_dot_product_attention
from flash_attn.ops import run_backward, run_forward

from kernel_builder.tuning import Case, workload

# (batch, heads, length, head dim), as many key heads as query heads
_BENCHMARK = [
    (2, 8, 128, 64), (4, 16, 512, 64), (8, 32, 1024, 128), (1, 16, 1024, 64), (2, 16, 1024, 64),
    (4, 16, 1024, 64), (8, 16, 1024, 128), (16, 16, 1024, 128), (32, 16, 1024, 128),
    (4, 16, 2048, 64), (4, 16, 4096, 64), (8, 16, 2048, 128), (8, 16, 4096, 128),
    (2, 16, 1024, 128), (8, 16, 1024, 64), (4, 16, 1024, 32), (8, 16, 1024, 256),
    (1, 24, 4608, 128), (2, 24, 4608, 64),
]  # fmt: skip
_MORE = [
    (32, 16, 512, 64), (8, 16, 256, 64), (1, 16, 8192, 64), (32, 16, 512, 128),
    (1, 16, 16384, 128), (4, 16, 2048, 96), (32, 8, 512, 256), (1, 8, 4096, 256),
]  # fmt: skip
_HELD_OUT = [
    (2, 12, 768, 64), (16, 16, 512, 64), (6, 16, 1024, 128), (8, 16, 1536, 128),
    (4, 16, 3072, 128), (1, 32, 2048, 128), (2, 16, 8192, 128), (8, 20, 1024, 128),
    (4, 16, 1024, 96), (12, 16, 256, 64),
]  # fmt: skip


def _cases(causal, more=_MORE):
    return [
        *(
            Case(B=b, H=h, S=s, D=d, causal=causal, weight=2.0 if known else 1.0)
            for known, shapes in ((True, _BENCHMARK), (False, more))
            for b, h, s, d in shapes
        ),
        *(Case(B=b, H=h, S=s, D=d, causal=causal, held_out=True) for b, h, s, d in _HELD_OUT),
    ]


def _reference(query, key, value, is_causal=False, enable_gqa=False):
    return F.scaled_dot_product_attention(
        query.float(), key.float(), value.float(), is_causal=is_causal, enable_gqa=enable_gqa
    )


@workload(
    call=scaled_dot_product_attention,
    reference=_reference,
    tolerance=2e-2,
    cases=[*_cases(False), *_cases(True)],
)
def sequences(B, H, S, D, causal, device):
    """query, key and value (B, H, S, D)."""
    query, key, value = (
        torch.randn(B, H, S, D, device=device, dtype=torch.bfloat16) for _ in range(3)
    )
    return {"query": query, "key": key, "value": value, "is_causal": causal}


@workload(
    call=scaled_dot_product_attention,
    reference=_reference,
    tolerance=2e-2,
    cases=[
        *(
            Case(B=b, keys=n, group=8)
            for b, n in (
                (1, 1024), (1, 16384), (1, 131072), (8, 2048), (8, 65536), (64, 1024),
                (64, 4096), (64, 32768),
            )
        ),
        *(Case(B=b, keys=n, group=1) for b, n in ((1, 8192), (64, 2048))),
        *(
            Case(B=b, keys=n, group=8, held_out=True)
            for b, n in ((1, 32768), (8, 8192), (8, 32768), (64, 8192))
        ),
    ],
)  # fmt: skip
def decoding(B, keys, group, device):
    """One query of 32 heads of dim 128 against a cache of (B, 32 / group, keys, 128)."""
    query = torch.randn(B, 32, 1, 128, device=device, dtype=torch.bfloat16)
    key, value = (
        torch.randn(B, 32 // group, keys, 128, device=device, dtype=torch.bfloat16)
        for _ in range(2)
    )
    return {"query": query, "key": key, "value": value, "enable_gqa": group > 1}


def _gradients(do, q, k, v, out, lse, causal):
    """Of (batch, seq, heads, dim) tensors, as autograd calls it."""
    right = 0 if causal else None
    return run_backward(do, q, k, v, out, lse, q.shape[-1] ** -0.5, None, right, False)


def _reference_gradients(do, q, k, v, out, lse, causal):
    inputs = [x.float().transpose(1, 2).detach().requires_grad_() for x in (q, k, v)]
    result = F.scaled_dot_product_attention(*inputs, is_causal=causal)
    return tuple(
        x.transpose(1, 2) for x in torch.autograd.grad(result, inputs, do.float().transpose(1, 2))
    )


@workload(
    call=_gradients,
    reference=_reference_gradients,
    tolerance=2e-2,
    cases=[*_cases(False, ()), *_cases(True, ())],
)
def gradients(B, H, S, D, causal, device):
    """The output's gradient, query, key and value (B, S, H, D), and what the forward pass gave."""
    do, q, k, v = (torch.randn(B, S, H, D, device=device, dtype=torch.bfloat16) for _ in range(4))
    out, lse = run_forward(q, k, v, D**-0.5, None, 0 if causal else None)
    return do, q, k, v, out, lse, causal
