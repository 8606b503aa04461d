"""One of each kind of attention, small: what every run of the tests does."""

from __future__ import annotations

from types import ModuleType

import flash_reference as reference
import pytest
import torch
from flash_checks import run, tensors


def test_full(kernel: ModuleType, device: str) -> None:
    """Both directions, lengths that no block divides, a head dim that is no power of two."""
    run(kernel, *tensors(1, 70, 50, 2, 2, 40, torch.bfloat16, device))


def test_causal_with_grouped_heads(kernel: ModuleType, device: str) -> None:
    """More queries than keys: the first rows see nothing."""
    run(kernel, *tensors(1, 70, 40, 2, 1, 32, torch.float16, device), causal=True)


def test_window(kernel: ModuleType, device: str) -> None:
    q, k, v = tensors(1, 90, 130, 1, 1, 32, torch.float16, device)
    run(kernel, q, k, v, window=(20, 10), backward=False)


def test_decode_splits_the_keys(kernel: ModuleType, device: str) -> None:
    q, k, v = tensors(1, 1, 700, 4, 2, 64, torch.bfloat16, device)
    run(kernel, q, k, v, causal=True, backward=False)


def test_varlen(kernel: ModuleType, device: str) -> None:
    bounds = torch.tensor([0, 20, 20, 53], dtype=torch.int32, device=device)
    q, k, v = (x[0] for x in tensors(1, 53, 53, 1, 1, 32, torch.float16, device))
    out = kernel.flash_attn_varlen_func(q, k, v, bounds, bounds, 33, 33, causal=True)
    for a, b in ((0, 20), (20, 53)):
        exact, _ = reference.attention(q[None, a:b], k[None, a:b], v[None, a:b], right=0)
        assert reference.error(out[a:b], exact[0]) < 2e-3


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"dropout_p": 0.1}, NotImplementedError, "dropout_p"),
        ({"softcap": 1.0}, NotImplementedError, "softcap"),
        ({"alibi_slopes": torch.ones(2)}, NotImplementedError, "alibi_slopes"),
        ({"softmax_scale": -1.0}, ValueError, "softmax_scale"),
        ({"window_size": (-3, 0)}, ValueError, "window_size"),
        ({"q": torch.ones(1, 4, 2, 32)}, TypeError, "q must be float16 or bfloat16"),
        ({"q": torch.ones(4, 2, 32).half()}, ValueError, "q must have 4 dimensions"),
        ({"q": torch.ones(1, 4, 2, 36).half()}, ValueError, "head dimension of q"),
        ({"q": torch.ones(1, 4, 3, 32).half()}, ValueError, "3 heads of q"),
        ({"q": torch.ones(2, 4, 2, 32).half()}, ValueError, "batch size of q"),
        ({"k": torch.ones(1, 4, 2, 64).half()}, ValueError, "k must have the head dimension"),
        ({"v": torch.ones(1, 5, 2, 32).half()}, ValueError, "v must have the shape of k"),
    ],
)
def test_messages_name_the_argument(
    kernel: ModuleType, change: dict, error: type[Exception], words: str
) -> None:
    arguments = {name: torch.ones(1, 4, 2, 32).half() for name in "qkv"} | change
    with pytest.raises(error, match=words):
        kernel.flash_attn_func(**arguments)
