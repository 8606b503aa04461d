"""Kernels with trees inside compiled programs and CUDA graphs."""

from __future__ import annotations

import re
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from benchmarks import _dispatch_kernels as kernels  # noqa: E402 - only where torch is
from benchmarks.dispatch import tuned  # noqa: E402
from kernelhub.dispatch.device import torch_device  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.filterwarnings("default"),
]


@pytest.fixture(scope="module", autouse=True)
def _tree() -> None:
    """C[r] = (A[r] + B[r]) * scale + N + K + BM + BN for r < M. For M = N = 512 the tree names
    BM = 128 up to K = 300, BM = 64 above."""
    tuned(kernels.tuned, torch_device(0))


def program(a: Any, b: Any, size: int, k: int) -> Any:
    c = torch.zeros_like(a)
    kernels.tuned[(size,)](a, b, c, size, size, k, 1, 1, 1, 2.0)
    return c + 1


def expected(a: Any, b: Any, size: int, k: int, bm: int) -> Any:
    return (a + b) * 2 + size + k + bm + 64 + 1


def test_inductor_compiles_the_one_configuration_that_the_tree_names() -> None:
    from torch._inductor.utils import run_and_get_code

    a, b = torch.randn(2, 512, device="cuda")
    for size, k, bm in ((512, 256, 128), (512, 512, 64)):
        torch._dynamo.reset()
        compiled = torch.compile(program, fullgraph=True, dynamic=False)
        got, code = run_and_get_code(compiled, a, b, size, k)
        torch.testing.assert_close(got, expected(a, b, size, k, bm))
        listed = re.findall(r"'BM': (\d+)", "".join(code))
        assert set(listed) <= {str(bm)}, listed


def test_compiled_programs_run_in_cuda_graphs() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(program, fullgraph=True, dynamic=False, mode="reduce-overhead")
    a, b = torch.randn(2, 512, device="cuda")
    for _ in range(4):
        got = compiled(a, b, 512, 256).clone()
        torch.testing.assert_close(got, expected(a, b, 512, 256, 128))
        a.add_(1)


def test_prepared_launches_are_captured() -> None:
    a, b = torch.randn(2, 512, device="cuda")
    for _ in range(3):  # the third launch is one that needs nothing of Triton
        program(a, b, 512, 256)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = program(a, b, 512, 256)
    a.add_(1)
    graph.replay()
    torch.cuda.synchronize()
    torch.testing.assert_close(got, expected(a, b, 512, 256, 128))
