"""The example kernels as users get them, on a real GPU: right, not searched, safe in a graph."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest

torch = pytest.importorskip("torch")

from kernel_builder import pack  # noqa: E402 - only where torch is
from kernel_builder.project import Project  # noqa: E402
from kernelhub import get_local_kernel  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.filterwarnings("default"),  # torch's own, of its compiler
]
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def load(name: str, folder: Path) -> ModuleType:
    pack.build(Project.open(EXAMPLES / name), folder / name)
    return get_local_kernel(folder / name)


@pytest.fixture(scope="module")
def rms_norm(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return load("rms-norm", tmp_path_factory.mktemp("rms"))


@pytest.fixture(scope="module")
def softmax(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return load("softmax", tmp_path_factory.mktemp("softmax"))


@contextmanager
def compiled(names: list[str]) -> Iterator[None]:
    """Collect the names of kernels that Triton compiles."""
    import triton

    def hook(*, repr: str, **_: object) -> bool:  # noqa: A002 - Triton's name
        names.append(repr.partition("[")[0])
        return False

    before = triton.knobs.runtime.jit_cache_hook
    triton.knobs.runtime.jit_cache_hook = hook
    try:
        yield
    finally:
        triton.knobs.runtime.jit_cache_hook = before


def relative(a: object, b: object) -> float:
    return ((a.double() - b).norm() / b.norm().clamp_min(1e-6)).item()  # type: ignore[attr-defined]


SHAPES = [(1, 768), (37, 1000), (4096, 4096), (100, 40000)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_rms_norm_is_right(rms_norm: ModuleType, shape: tuple[int, int], dtype: object) -> None:
    x = torch.randn(shape, device="cuda", dtype=dtype, requires_grad=True)
    weight = torch.randn(shape[1], device="cuda", dtype=dtype, requires_grad=True)
    dy = torch.randn(shape, device="cuda", dtype=dtype)
    y = rms_norm.rms_norm(x, weight)
    y.backward(dy)
    x64, w64 = (t.detach().double().requires_grad_() for t in (x, weight))
    want = torch.nn.functional.rms_norm(x64, (shape[1],), w64, 1e-6)
    want.backward(dy.double())
    limit = 1e-5 if dtype == torch.float32 else 1e-2
    for got, right in ((y, want), (x.grad, x64.grad), (weight.grad, w64.grad)):
        assert relative(got, right) < limit


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_softmax_is_right(softmax: ModuleType, shape: tuple[int, int], dtype: object) -> None:
    x = torch.randn(shape, device="cuda", dtype=dtype, requires_grad=True)
    dy = torch.randn(shape, device="cuda", dtype=dtype)
    y = softmax.softmax(x, 0.7)
    y.backward(dy)
    x64 = x.detach().double().requires_grad_()
    want = torch.softmax(x64 * 0.7, -1)
    want.backward(dy.double())
    limit = 1e-5 if dtype == torch.float32 else 1e-2
    for got, right in ((y, want), (x.grad, x64.grad)):
        assert relative(got, right) < limit


def test_a_first_call_compiles_once_and_may_be_captured(rms_norm: ModuleType) -> None:
    """A shape that nobody has seen: one compile, no benchmark, also inside a CUDA graph."""
    x = torch.randn(777, 1234, device="cuda", dtype=torch.bfloat16)
    weight = torch.randn(1234, device="cuda", dtype=torch.bfloat16)
    names: list[str] = []
    with compiled(names):
        want = rms_norm.rms_norm(x, weight)
    assert names.count("rms_norm_forward") <= 1, names
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = rms_norm.rms_norm(x, weight)
    got.zero_()
    graph.replay()
    torch.cuda.synchronize()
    torch.testing.assert_close(got, want, rtol=0, atol=0)


@pytest.mark.xfail(
    torch.__version__.split(".")[:2] == ["2", "11"],
    reason="torch 2.11 loses the source of a kernel with heuristics and pruning, bound or not",
    strict=True,
)
def test_torch_compile_runs_the_same_kernel(
    softmax: ModuleType, caplog: pytest.LogCaptureFixture
) -> None:
    x = torch.randn(64, 2048, device="cuda", dtype=torch.bfloat16)
    want = softmax.softmax(x)
    with caplog.at_level(logging.WARNING):
        got = torch.compile(softmax.softmax, fullgraph=True)(x)
    torch.testing.assert_close(got, want, rtol=0, atol=0)
