"""Kernels with trees inside compiled programs, CUDA graphs and on several GPUs."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from benchmarks import _dispatch_kernels as kernels  # noqa: E402 - only where torch is
from benchmarks.dispatch import tuned  # noqa: E402
from benchmarks.subjects import ROOT, subject  # noqa: E402
from benchmarks.tuning_time import narrowed  # noqa: E402
from kernel_builder.tuning import machine  # noqa: E402
from kernel_builder.tuning.log import Measurements  # noqa: E402
from kernel_builder.tuning.measure import MeasureRequest, measure  # noqa: E402
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


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_two_gpus_measure_at_once_and_nothing_twice(tmp_path: Path) -> None:
    chosen = subject("matmul")
    workloads = narrowed(Path(chosen.site.workloads), 4, tmp_path)
    site = replace(chosen.site, workloads=str(workloads), paths=(str(ROOT),))
    with machine.running(machine.device_runners(site, 2, "warm")) as runners:
        (item,), progress = measure(runners, tmp_path, MeasureRequest(allow_unstable=True))
        assert all(runner.effort()["measure"] > 0 for runner in runners)
    assert progress.finished
    found = Measurements.read(item.path)
    matrix = found.matrix(item.context)
    assert len(matrix.points) == 4
    assert all(matrix.best(point) is not None for point in matrix.points)
    with machine.running(machine.device_runners(site, 2, "warm")) as runners:
        _, again = measure(runners, tmp_path, MeasureRequest(allow_unstable=True))
    assert again.measured == 0
