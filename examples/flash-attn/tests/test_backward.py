"""What surrounds the sm_90 backward kernel, and that kernel where there is such a GPU."""

from __future__ import annotations

import importlib
import math
from types import ModuleType

import flash_reference as reference
import pytest
import torch
from flash_checks import run, tensors
from triton.runtime.errors import OutOfResources

from kernelhub.dispatch.capturing import capture


@pytest.fixture(scope="session")
def sums(kernel: ModuleType) -> ModuleType:
    return importlib.import_module(f"{kernel.__name__}.backward_sums")


def test_rows_are_prepared_and_padded(sums: ModuleType, device: str) -> None:
    """Absent rows, and those that see no key, get what makes their probabilities 0."""
    o, do = (torch.randn(2, 70, 3, 24, device=device).half() for _ in range(2))
    lse = torch.randn(2, 3, 70, device=device)
    lse[0, 1, 5] = -math.inf
    logs, deltas = torch.full((2, 6, 128), math.nan, device=device)
    total = torch.full((6, 128, 32), math.nan, device=device)
    sums.prepare_kernel[(12,)](
        o, do, lse, logs, deltas, total, *o.stride()[:3], *do.stride()[:3], 70, 3, 128, 2,
        DIM=24, BLOCK_D=32, BLOCK_M=64,
    )  # fmt: skip
    assert (total == 0).all()
    assert (logs[:, 70:] == math.inf).all()
    assert logs[1, 5] == math.inf
    expected = lse.reshape(6, 70) / math.log(2)
    seen = expected != -math.inf
    torch.testing.assert_close(logs[:, :70][seen], expected[seen])
    exact = (o.double() * do.double()).sum(-1).transpose(1, 2).reshape(6, 70)
    torch.testing.assert_close(deltas[:, :70].double(), exact, rtol=1e-4, atol=1e-4)
    assert (deltas[:, 70:] == 0).all()


def test_the_sum_becomes_dq(sums: ModuleType, device: str) -> None:
    """Padding stays behind, and dQ may have any strides."""
    total = torch.randn(6, 128, 32, device=device)
    dq = torch.full((2, 3, 70, 24), math.nan, device=device, dtype=torch.float16).transpose(1, 2)
    sums.finish_kernel[(12,)](
        total, dq, *dq.stride()[:3], 70, 3, 128, 2, 0.5, DIM=24, BLOCK_D=32, BLOCK_M=64
    )
    expected = total.reshape(2, 3, 128, 32)[:, :, :70, :24].transpose(1, 2) * 0.5
    torch.testing.assert_close(dq, expected.half())


def test_who_demands_determinism_passes_by_the_tree(kernel: ModuleType, device: str) -> None:
    """A tree may choose a kernel that adds to dQ in any order."""
    q, k, v = tensors(1, 16, 16, 1, 1, 16, torch.float16, device)

    def launches(**options: bool) -> list[str]:
        seen: list[str] = []
        inputs = [x.clone().requires_grad_() for x in (q, k, v)]
        with (  # launches are captured in this thread
            torch.autograd.set_multithreading_enabled(False),
            capture(lambda live: seen.append(live.tunable.name.rpartition(".")[2])),
        ):
            kernel.flash_attn_func(*inputs, **options).sum().backward()
        return seen

    assert launches() == ["attention_fwd", "attention_bwd"]
    assert launches(deterministic=True) == ["attention_fwd"]
    torch.use_deterministic_algorithms(True)
    try:
        assert launches() == ["attention_fwd"]
    finally:
        torch.use_deterministic_algorithms(False)


def hopper() -> bool:
    return torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)


@pytest.mark.gpu
@pytest.mark.parametrize("dim", [32, 40, 64, 96, 128, 200, 256])
@pytest.mark.parametrize("causal", [False, True])
def test_every_candidate(kernel: ModuleType, dim: int, causal: bool) -> None:
    """All configurations agree with float64; dK and dV are bit-equal from run to run."""
    if not hopper():
        pytest.skip("needs an sm_90 GPU")
    gradient = importlib.import_module(f"{kernel.__name__}.gradient")
    attention = importlib.import_module(f"{kernel.__name__}.attention")
    configs = importlib.import_module(f"{kernel.__name__}.backward_configs")
    right = 0 if causal else None
    for batch, queries, keys, heads, heads_k in (
        (2, 300, 500, 4, 2),
        (1, 500, 130, 2, 1),
        (2, 512, 512, 2, 2),
    ):
        q, do = (
            torch.randn(batch, queries, heads, dim, device="cuda").bfloat16() for _ in range(2)
        )
        k, v = (torch.randn(batch, keys, heads_k, dim, device="cuda").bfloat16() for _ in range(2))
        out, lse = attention.attention_fwd(q, k, v, dim**-0.5, None, right)
        exact = [x.double().cpu().requires_grad_() for x in (q, k, v)]
        reference.attention(*exact, right=right)[0].backward(do.double().cpu())
        peer = [x.clone().requires_grad_() for x in (q, k, v)]
        reference.sdpa(*peer, right=right).backward(do)
        for config in configs.BACKWARD:
            try:
                runs = [
                    gradient.attention_bwd(do, q, k, v, out, lse, dim**-0.5, None, right, **config)
                    for _ in range(2)
                ]
            except OutOfResources:
                continue
            for ours, theirs, truth in zip(runs[0], peer, exact, strict=True):
                bound = 2 * reference.error(torch.nan_to_num(theirs.grad), truth.grad) + 3e-3
                assert reference.error(ours, truth.grad) <= bound, config
            start = 1 if config["implementation"] == "hopper" else 0
            for first, second in zip(runs[0][start:], runs[1][start:], strict=True):
                assert torch.equal(first, second), config


@pytest.mark.gpu
@pytest.mark.parametrize("dim", [16, 64, 128, 256])
def test_deterministic_gradients_are_bit_equal(kernel: ModuleType, dim: int) -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    given = [torch.randn(4, 1024, 8, dim, device="cuda").bfloat16() for _ in range(4)]

    def once() -> tuple[torch.Tensor, ...]:
        inputs = [x.clone().requires_grad_() for x in given[:3]]
        out = kernel.flash_attn_func(*inputs, causal=True, deterministic=True)
        return torch.autograd.grad(out, inputs, given[3])

    for first, second in zip(once(), once(), strict=True):
        assert torch.equal(first, second)


@pytest.mark.gpu
@pytest.mark.parametrize("dim", [16, 32, 64, 96, 128, 256])
@pytest.mark.parametrize("causal", [False, True])
def test_default_on_gpu(kernel: ModuleType, dim: int, causal: bool) -> None:
    """Through the public function, long enough for the kernel of the device."""
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    run(kernel, *tensors(1, 600, 700, 4, 2, dim, torch.bfloat16, "cuda"), causal=causal)
