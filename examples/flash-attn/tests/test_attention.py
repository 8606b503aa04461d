"""Against float64, with at most twice the error of PyTorch's own attention."""

from __future__ import annotations

import math
import sys
from types import ModuleType

import flash_reference as reference
import pytest
import torch
from flash_checks import DTYPES, check, run, tensors
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.slow  # test_sample.py has one of each for every run


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", [16, 40, 64, 96, 128, 200, 256])
def test_head_dims(kernel: ModuleType, device: str, dim: int, dtype: torch.dtype) -> None:
    run(kernel, *tensors(1, 40, 72, 1, 1, dim, dtype, device))


@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (65, 130), (130, 65), (64, 64)])
@pytest.mark.parametrize("causal", [False, True])
def test_lengths(kernel: ModuleType, device: str, queries: int, keys: int, causal: bool) -> None:
    run(kernel, *tensors(2, queries, keys, 2, 2, 32, torch.bfloat16, device), causal=causal)


@pytest.mark.parametrize("window", [(20, 10), (-1, 5), (7, -1), (0, 0)])
@pytest.mark.parametrize(("queries", "keys"), [(70, 70), (90, 40), (40, 90)])
def test_sliding_window(
    kernel: ModuleType, device: str, window: tuple[int, int], queries: int, keys: int
) -> None:
    run(kernel, *tensors(1, queries, keys, 1, 1, 32, torch.float16, device), window=window)


@pytest.mark.parametrize("heads_k", [1, 2])
@pytest.mark.parametrize("queries", [1, 3, 70])
def test_grouped_heads(kernel: ModuleType, device: str, heads_k: int, queries: int) -> None:
    run(kernel, *tensors(2, queries, 80, 4, heads_k, 32, torch.bfloat16, device), causal=True)


@pytest.mark.parametrize("queries", [1, 5])
@pytest.mark.parametrize("causal", [False, True])
def test_decode_splits_the_keys(
    kernel: ModuleType, device: str, queries: int, causal: bool
) -> None:
    q, k, v = tensors(1, queries, 700, 4, 2, 64, torch.float16, device)
    run(kernel, q, k, v, causal=causal, window=(300, -1) if causal else (-1, -1), backward=False)


def test_scale(kernel: ModuleType, device: str) -> None:
    run(kernel, *tensors(1, 33, 50, 1, 1, 32, torch.float16, device), scale=0.5)


def test_strided_inputs_are_read_in_place(kernel: ModuleType, device: str) -> None:
    packed = torch.randn(2, 50, 3, 2, 32, device=device).to(torch.float16)
    q, k, v = packed.unbind(2)
    run(kernel, q, k, v, backward=False)
    heads_first = [x.transpose(1, 2).contiguous() for x in (q, k, v)]
    out = kernel.scaled_dot_product_attention(*heads_first)
    assert out.stride() == heads_first[0].stride()
    assert torch.equal(out.transpose(1, 2), kernel.flash_attn_func(q, k, v))


def test_sdpa_masks_from_the_top_left(kernel: ModuleType, device: str) -> None:
    q, k, v = (x.transpose(1, 2) for x in tensors(1, 30, 50, 2, 2, 32, torch.float16, device))
    ours = kernel.scaled_dot_product_attention(q, k, v, is_causal=True)
    theirs = torch.nn.functional.scaled_dot_product_attention(
        q.double().cpu(), k.double().cpu(), v.double().cpu(), is_causal=True
    )
    assert reference.error(ours, theirs) < 2e-3


@pytest.mark.parametrize("causal", [False, True])
def test_varlen_equals_each_sequence_alone(kernel: ModuleType, device: str, causal: bool) -> None:
    lengths_q, lengths_k = [5, 0, 70, 33], [40, 10, 30, 33]
    cu_q, cu_k = (
        torch.tensor([0, *torch.tensor(x).cumsum(0).tolist()], dtype=torch.int32, device=device)
        for x in (lengths_q, lengths_k)
    )
    q = torch.randn(sum(lengths_q), 2, 32, device=device).half().requires_grad_()
    k, v = (
        torch.randn(sum(lengths_k), 1, 32, device=device).half().requires_grad_() for _ in range(2)
    )
    out, lse, _ = kernel.flash_attn_varlen_func(
        q, k, v, cu_q, cu_k, 70, 40, causal=causal, return_attn_probs=True
    )
    upstream = torch.randn_like(out)
    out.backward(upstream)
    exact_in = [x.detach().double().cpu().requires_grad_() for x in (q, k, v)]
    pieces, logs = [], []
    for a, b, c, d in zip(cu_q[:-1], cu_q[1:], cu_k[:-1], cu_k[1:], strict=True):
        piece, log = reference.attention(
            exact_in[0][None, a:b], exact_in[1][None, c:d], exact_in[2][None, c:d], None, None,
            0 if causal else None,
        )  # fmt: skip
        pieces.append(piece[0])
        logs.append(log[0])
    exact = torch.cat(pieces)
    exact.backward(upstream.double().cpu())
    assert reference.error(out, exact) < 2e-3
    exact_lse = torch.cat(logs, 1).detach()
    finite = exact_lse != -math.inf
    assert (lse.cpu().double() - exact_lse)[finite].abs().max() < 5e-3
    for ours, truth in zip((q, k, v), exact_in, strict=True):
        assert reference.error(ours.grad, truth.grad) < 3e-3


def test_empty(kernel: ModuleType, device: str) -> None:
    q, k, v = tensors(2, 5, 0, 1, 1, 32, torch.float16, device)
    assert (kernel.flash_attn_func(q, k, v) == 0).all()
    q, k, v = tensors(0, 5, 4, 1, 1, 32, torch.float16, device)
    assert kernel.flash_attn_func(q, k, v).shape == (0, 5, 1, 32)


def test_bit_equal_from_run_to_run(kernel: ModuleType, device: str) -> None:
    def once() -> list[torch.Tensor]:
        inputs = [x.clone().requires_grad_() for x in given]
        out = kernel.flash_attn_func(*inputs, causal=True)
        out.backward(upstream)
        return [out, *(x.grad for x in inputs)]

    given = tensors(1, 70, 90, 2, 1, 64, torch.float16, device)
    upstream = torch.randn_like(given[0])
    for first, second in zip(once(), once(), strict=True):
        assert torch.equal(first, second)


@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    queries=st.integers(1, 90),
    keys=st.integers(1, 90),
    heads=st.sampled_from([(1, 1), (2, 1), (2, 2)]),
    dim=st.integers(2, 16).map(lambda n: 8 * n),
    window=st.tuples(st.integers(-1, 60), st.integers(-1, 60)),
    causal=st.booleans(),
)
def test_drawn_shapes(
    kernel: ModuleType,
    device: str,
    queries: int,
    keys: int,
    heads: tuple[int, int],
    dim: int,
    window: tuple[int, int],
    causal: bool,
) -> None:
    run(
        kernel,
        *tensors(1, queries, keys, *heads, dim, torch.float16, device),
        causal=causal,
        window=window,
    )


def test_fullgraph_compilation(kernel: ModuleType, device: str) -> None:
    def model(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return kernel.flash_attn_func(q * 2, k, v, causal=True).sum()

    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    given = tensors(1, 20, 20, 1, 1, 32, torch.float16, device)
    grads = []
    for function in (model, compiled):
        inputs = [x.clone().requires_grad_() for x in given]
        function(*inputs).backward()
        grads.append([x.grad for x in inputs])
    for eager, graph in zip(*grads, strict=True):
        assert torch.equal(eager, graph)


def test_op_contract(kernel: ModuleType, device: str) -> None:
    q, k, v = (x.requires_grad_() for x in tensors(1, 9, 9, 1, 1, 16, torch.float16, device))
    ops = sys.modules[f"{kernel.__name__}.ops"]
    torch.library.opcheck(
        ops.forward,
        (q, k, v, 0.25, None, 0),
        test_utils=("test_schema", "test_faketensor", "test_autograd_registration"),
    )


def test_unwritten_output_is_noticed(
    kernel: ModuleType, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every element is written: fresh memory is full of NaN here."""
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        run(kernel, *tensors(2, 77, 45, 2, 1, 40, torch.float16, device), causal=True)
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.gpu
@pytest.mark.parametrize("dim", [32, 64, 96, 128, 256])
@pytest.mark.parametrize("causal", [False, True])
def test_every_candidate(kernel: ModuleType, dim: int, causal: bool) -> None:
    """All configurations agree with float64, with one and with many tiles a program, and where
    scores rise or fall along the keys, so that the reference of a row keeps moving."""
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    attention = sys.modules[f"{kernel.__name__}.attention"]
    configs = sys.modules[f"{kernel.__name__}.configs"]
    device_facts = sys.modules[f"{kernel.__name__}.device"]
    right = 0 if causal else None
    for batch, queries, keys, heads, heads_k, slope in (
        (1, 333, 501, 4, 2, 0.0),
        (2, 501, 333, 2, 1, 0.0),
        (8, 700, 600, 32, 8, 0.0),
        (2, 400, 1000, 2, 2, 3.0),
        (2, 400, 1000, 2, 2, -3.0),
    ):
        q, k, v = tensors(batch, queries, keys, heads, heads_k, dim, torch.bfloat16, "cuda")
        if slope:
            q, k = q + 1, k + slope * torch.linspace(-1, 1, keys, device="cuda")[:, None, None]
            q, k = q.bfloat16(), k.bfloat16()
        exact, _ = reference.attention(q, k, v, right=right)
        peer = reference.sdpa(q, k, v, right=right)
        for config in configs.FORWARD:
            if config["implementation"] == "hopper" and not device_facts.facts(q).hopper:
                continue
            try:
                out, _ = attention.attention_fwd(q, k, v, dim**-0.5, None, right, **config)
            except Exception as error:
                if "OutOfResources" not in type(error).__name__:
                    raise
                continue
            check(out, peer, exact)
