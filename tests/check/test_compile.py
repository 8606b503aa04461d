"""Triton kernels compile without a GPU, in workers that may die."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_builder.check import Report, check_project
from kernel_builder.compile import Target, parse_target, pool
from kernel_builder.compile.launch import Refusal
from kernelhub import settings
from kernelhub.errors import InputError
from kernelhub.reporter import SILENT, Reporter

from .sample import BUILD, project

needs_triton = pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ("triton", "torch")),
    reason="needs triton and torch",
)

KERNELS = """
import os
import torch
import triton
import triton.language as tl

open(os.environ["IMPORTED_BY"], "a").write(f"{os.getpid()}\\n")
GLOBAL = 3.0


@triton.jit
def helper(x):
    return x + x


@triton.jit
def good(x_ptr, y_ptr, n, scale, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = helper(tl.load(x_ptr + at, mask=at < n))
    tl.store(y_ptr + at, x * scale, mask=at < n)


@triton.jit
def bad(x_ptr, n):
    tl.store(x_ptr, GLOBAL)


@triton.jit
def tile(a_ptr, b_ptr, c_ptr, N: tl.constexpr, BLOCK: tl.constexpr):
    rows = tl.arange(0, BLOCK)
    acc = tl.zeros([BLOCK, BLOCK], tl.float32)
    for k in range(0, N, 64):
        inner = k + tl.arange(0, 64)
        a = tl.load(a_ptr + rows[:, None] * N + inner[None, :])
        b = tl.load(b_ptr + rows[:, None] * N + inner[None, :])
        acc = tl.dot(a, tl.trans(b), acc)
    tl.store(c_ptr + rows[:, None] * BLOCK + rows[None, :], acc)


def _configs(*blocks):
    return [triton.Config({"BLOCK": b}, num_warps=8, num_stages=s) for b, s in blocks]


some_fit = triton.autotune(_configs((64, 2), (256, 6)), key=[])(tile)
none_fits = triton.autotune(_configs((256, 5)), key=[])(triton.jit(tile.fn))


@triton.jit
def row_sum(x_ptr, y_ptr, N: tl.constexpr):
    tl.store(y_ptr, tl.sum(tl.load(x_ptr + tl.arange(0, N)), axis=0))


@triton.jit
def never_launched(x_ptr):
    tl.store(x_ptr, 0)
"""

API = """
import torch
from . import kernels


class _Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.empty_like(x)
        kernels.good[(1,)](x, y, x.numel(), 2.0, BLOCK=128)
        return y

    @staticmethod
    def backward(ctx, dy):
        kernels.row_sum[(1,)](dy, dy, N=256)
        return dy


def scale(x: torch.Tensor) -> torch.Tensor:
    if x.dim() != 2 or x.dtype != torch.bfloat16:
        raise ValueError("x must be a bfloat16 matrix")
    return _Scale.apply(x)


def spoil(x):
    kernels.bad[(1,)](x, 3)


def outer(x):
    kernels.some_fit[(1,)](x, x, x, N=256)
    kernels.none_fits[(1,)](x, x, x, N=256)


def picky(x: torch.Tensor, mode: str):
    raise AssertionError("never called: `mode` cannot be made up")


__all__ = ["outer", "picky", "scale", "spoil"]
"""


def by_code(report: Report) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for problem in (*report.faults, *report.notes):
        found.setdefault(problem.code or "", []).append(problem.message)
    return found


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shared, so that what one test compiled is found by the next."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def run(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("IMPORTED_BY", str(tmp_path / "pids"))
    monkeypatch.setenv("TRITON_INTERPRET", "1")  # must not leak into the workers
    root = project(tmp_path / "p", {"__init__.py": API, "kernels.py": KERNELS})

    def check(*targets: str, compiling: bool = True, reporter: Reporter = SILENT) -> Report:
        with settings.scope(cache=cache):
            return check_project(root, targets=targets, compiling=compiling, reporter=reporter)

    return check


class Heard(Reporter):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.stages: list[tuple[str, int | None]] = []
        self.advanced: list[str] = []

    def stage(self, name: str, total: int | None = None, unit: str = "") -> None:
        self.stages.append((name, total))

    def advance(self, amount: int = 1, note: str = "") -> None:
        self.advanced += [note] * amount


@needs_triton
def test_kernels_are_compiled_as_the_package_launches_them(
    run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "_WORTH_A_WORKER", 4)
    heard = Heard()
    report = run("sm_90", reporter=heard)
    found = by_code(report)
    checked = " ".join(found.pop("kernel-checked"))
    for part in (
        "good is compiled as launched by scale(x=bfloat16[64, 256])",
        "row_sum",
        "some_fit",
    ):
        assert part in checked
    assert "helper" not in checked
    (unchecked,) = found.pop("kernel-unchecked")
    assert "never_launched" in unchecked
    assert "picky raised TypeError: parameter 'mode'" in unchecked
    (bad,) = found.pop("kernel-compile")
    assert "kernels.bad: none of 1 configuration compiles for sm_90" in bad
    assert "GLOBAL" in bad
    (too_big,) = found.pop("kernel-shared-memory")
    assert "kernels.none_fits: none of 1 configuration fits sm_90" in too_big
    assert "232448 are allowed" in too_big
    assert any("BLOCK: 256" in text and "some_fit" in text for text in found.pop("kernel-config"))
    assert set(found) <= {"kernel-spills"}
    places = {(p.path, p.line) for p in report.faults}
    lines = KERNELS.splitlines()
    assert ("torch-ext/scale_it/kernels.py", lines.index("def bad(x_ptr, n):") + 1) in places
    pids = set(map(int, (tmp_path / "pids").read_text().split()))
    assert os.getpid() not in pids
    assert len(pids) == 2  # workers
    assert not list((tmp_path / "p").rglob("__pycache__"))
    # What was told as it went on.
    (first, none), (second, total) = heard.stages
    assert (first, none) == ("importing scale_it and calling it", None)
    assert second == "compiling Triton kernels"
    assert total == len(heard.advanced)
    assert "kernels.good on sm_90" in heard.advanced


def test_nothing_is_imported_without_compiling(run, tmp_path: Path) -> None:
    heard = Heard()
    assert run(compiling=False, reporter=heard).faults == ()
    assert heard.stages == []
    assert not (tmp_path / "pids").exists()
    assert "scale_it" not in sys.modules


@needs_triton
def test_a_compiler_that_aborts_is_a_fault_of_one_kernel(run) -> None:
    found = by_code(run("sm_999"))
    (fault,) = [text for text in found["kernel-compile"] if "row_sum" in text]
    assert "the compiler died (signal 6)" in fault
    assert any("bad" in text and "GLOBAL" in text for text in found["kernel-compile"])


@needs_triton
@pytest.mark.slow
def test_a_compilation_that_takes_too_long_is_given_up(tmp_path: Path, run, cache: Path) -> None:
    run(compiling=False)  # writes the project
    subject = pool.Subject(
        root=tmp_path / "p", folder=tmp_path / "p/torch-ext", package="scale_it",
        cache=tmp_path,
    )  # fmt: skip
    targets = [parse_target("sm_90")]
    with pool.Pool(subject, seconds=0.001) as hasty:
        stock = hasty.take_stock()
        assert isinstance(stock, pool.Inventory)
        good = [kernel for kernel in stock.kernels if kernel.name == "kernels.good"]
        ((slow,),) = hasty.compile_all(good, targets)
    assert isinstance(slow.result, Refusal)
    assert slow.result.kind == "timeout"
    assert not slow.fits
    with pool.Pool(subject) as patient:
        ((fast,),) = patient.compile_all(good, targets)
        others = patient.compile_all(stock.kernels, targets)
        next(others)
        others.close()  # nobody asks any more, so nobody waits for the rest
        ((late,),) = patient.compile_all(good, targets)
    assert isinstance(late.result, Refusal)
    assert late.result.reason == "given up"
    assert fast.fits


@needs_triton
@pytest.mark.parametrize(
    ("source", "words"),
    [("raise RuntimeError('no luck')", "no luck"), ("import os; os._exit(7)", "exit code 7")],
)
def test_a_package_that_cannot_be_imported(tmp_path: Path, source: str, words: str) -> None:
    root = project(tmp_path / "p", {"__init__.py": f"import triton\n{source}\n__all__ = []\n"})
    report = check_project(root, targets=["sm_90"])
    (fault,) = report.faults
    assert fault.code == "kernel-import"
    assert words in fault.message


@needs_triton
def test_a_dependency_that_this_machine_lacks_is_no_fault(tmp_path: Path) -> None:
    build = BUILD.replace('"Apache-2.0"', '"Apache-2.0"\ndependencies = ["not-here"]')
    source = {"kernels.py": "import not_here, triton\n", "__init__.py": "from . import kernels\n"
              "__all__ = ['kernels']\n"}  # fmt: skip
    report = check_project(project(tmp_path / "p", source, build=build), targets=["sm_90"])
    assert report.faults == ()
    (note,) = report.notes
    assert note.code == "kernel-unchecked"
    assert "not_here" in note.message


WORKLOADS = """
import torch
from kernel_builder.tuning import Case, workload
from scale_it import scale

@workload(call=scale, cases=[Case(M=1 << 20, N=1 << 14)])
def big(M, N, device):
    return torch.empty(M, N, dtype=torch.bfloat16, device=device),
"""


@needs_triton
@pytest.mark.slow
def test_workloads_say_what_is_launched(run, tmp_path: Path, cache: Path) -> None:
    pytest.importorskip("kernel_builder.tuning.workloads")
    (tmp_path / "p/build.toml").write_text(BUILD + '[tuning]\nworkloads = "w.py"\n')
    (tmp_path / "p/w.py").write_text(WORKLOADS)
    checked = by_code(run("sm_90"))["kernel-checked"]
    assert any("good is compiled as launched by workload big/" in text for text in checked)


LAUNCH = """
import json, sys, torch
from kernel_builder.compile import compile_launch
sys.path.insert(0, sys.argv[1])
from scale_it import kernels as k
half = torch.float16
big = torch.empty(1 << 20, 1 << 14, dtype=half, device="meta")
out = [
    compile_launch(k.good, (half, big, 64, 1.0), {"BLOCK": 128, "num_warps": 2}, "9.0a"),
    compile_launch(k.good, (big, half, 64, 1.0), {"BLOCK": 128}, "gfx942", details=False),
    compile_launch(k.none_fits, (big, big, big), {"N": 256, "BLOCK": 64, "num_stages": 2}, "sm_80"),
    compile_launch(k.good, (half, half, 64, 1.0), {"BLOCK": 100}, "sm_90"),
]
print(json.dumps([str(x) for x in out]))
"""


@needs_triton
def test_compile_launch(run, tmp_path: Path, cache: Path) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    environment["TRITON_CACHE_DIR"] = str(cache / "compiled")
    done = subprocess.run(
        [sys.executable, "-c", LAUNCH, str(tmp_path / "p/torch-ext")],
        capture_output=True, text=True, env=environment, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    cuda, amd, tuned, refused = json.loads(done.stdout)
    assert "num_warps=2" in cuda
    assert "spills=0" in cuda
    assert "registers=None" in amd
    assert "shared_memory=0" not in tuned
    assert refused.startswith("Refusal(kind='compile'")
    assert "power of 2" in refused


@pytest.mark.parametrize(
    ("text", "arch", "limit"),
    [("9.0", "sm_90", 232448), ("9.0a", "sm_90", 232448), ("10.0f", "sm_100", 232448),
     ("12.0+PTX", "sm_120", 101376), ("sm_80", "sm_80", 166912), ("cuda:86", "sm_86", 101376),
     ("gfx942", "gfx942", 65536), ("hip:gfx950", "gfx950", 163840), ("sm_75", "sm_75", None),
     ("gfx90a:sramecc+", "gfx90a", None)],
)  # fmt: skip
def test_targets(text: str, arch: str, limit: int | None) -> None:
    target = parse_target(text)
    assert isinstance(target, Target)
    assert (target.arch, target.shared_memory) == (arch, limit)


@pytest.mark.parametrize("text", ["", "h100", "sm_", "9", "gfx", "9.0.1"])
def test_what_is_no_target(text: str) -> None:
    with pytest.raises(InputError, match="architecture"):
        parse_target(text)


def test_an_unknown_target_is_the_callers_fault(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="h100"):
        check_project(project(tmp_path / "p"), targets=["h100"])


@pytest.mark.parametrize(("total", "count"), [(1, 4), (4, 4), (33, 4), (5, 2), (9, 1)])
def test_spread_takes_both_ends(total: int, count: int) -> None:
    chosen = pool.spread(total, count)
    assert len(chosen) == min(total, count)
    assert chosen[0] == 0
    assert count == 1 or chosen[-1] == total - 1
