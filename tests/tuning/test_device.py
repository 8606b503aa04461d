"""Checking and timing candidates: on the CPU for real, the timer on a device made of counters."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_builder.tuning.compare import difference, snapshot
from kernel_builder.tuning.runner import Found, Outcome, Task
from kernel_builder.tuning.runners.device import DeviceCore
from kernel_builder.tuning.runners.process import ProcessRunner
from kernel_builder.tuning.site import Site
from kernel_builder.tuning.timing import GraphTimer, interleaved
from kernel_builder.tuning.tune import project_place
from kernelhub.errors import TuningError
from kernelhub.formats.tree import Config

EXAMPLES = Path(__file__).parents[2] / "examples"
TROUBLED = """
from kernelhub import tunable


@tunable(configs=[{"block": n} for n in range(6)], default={"block": 1}, key=["n"])
def scale(values, n, *, block):
    if block == 2:
        raise RuntimeError("an illegal memory access was encountered")
    if block == 3:
        return [2 * v for v in values[:-1]]
    if block == 4:
        values[0] = 99
    if block == 5:
        import os
        os._exit(1)
    return [2 * v for v in values]


def double(values):
    return scale(values, len(values))
"""


def checked(site: Site, pick: int = 0, **more: Any) -> tuple[Found, list[Outcome]]:
    runner = ProcessRunner("device", {"site": site.to_json(), "index": None, **more})
    try:
        found = runner.collect()[pick]
        task = Task(
            kernel=found.kernel, case=found.case, point=found.point, features=found.features
        )
        return found, list(runner.check(task, found.candidates, found.candidates[0]))
    finally:
        runner.close()


def test_every_candidate_is_compared_before_it_may_be_timed(project: Path) -> None:
    (project / "torch-ext/toy/__init__.py").write_text(TROUBLED)
    found, outcomes = checked(project_place(project).site)
    assert found.candidates[0] == {"block": 1}  # the author's default comes first
    by_block = {o.config["block"]: o for o in outcomes}
    assert {block: o.reason for block, o in by_block.items()} == {
        0: None,
        1: None,
        2: "fault",
        3: "wrong_result",
        4: "wrong_result",  # it spoilt its input
        5: "fault",
    }
    assert "illegal memory access" in by_block[2].detail
    assert "exit code 1" in by_block[5].detail


def test_a_default_that_disagrees_with_the_reference_is_not_the_base(project: Path) -> None:
    source = TROUBLED.replace('default={"block": 1}', 'default={"block": 3}')
    (project / "torch-ext/toy/__init__.py").write_text(source)
    _, outcomes = checked(project_place(project).site)
    assert {o.config["block"]: o.reason for o in outcomes}[3] == "wrong_result"
    assert {o.config["block"]: o.reason for o in outcomes}[1] is None


class Marks:
    def __init__(self) -> None:
        self.under_way: list[Any] = []

    def begin(self, config: Any) -> None:
        self.under_way.append(config)

    def end(self, config: Any) -> None:
        self.under_way.remove(config)


class Device:
    """As much of `torch.cuda` as the timer uses; the host is late `late` times."""

    def __init__(self, late: int = 0, ms: float = 0.01) -> None:
        self.late = late
        self.ms = ms
        self.waits: list[int] = []
        self.replays: list[int] = []  # of each graph
        self.open = False
        self.cuda = SimpleNamespace(
            Stream=lambda: SimpleNamespace(synchronize=lambda: None),
            Event=lambda enable_timing: self.event(),
            CUDAGraph=self.graph,
            stream=lambda stream: contextlib.nullcontext(),
            _sleep=self.waits.append,
        )

    def event(self) -> Any:
        return SimpleNamespace(
            record=lambda: None,
            query=self.was_late,
            synchronize=lambda: None,
            elapsed_time=lambda end: self.ms,
        )

    def was_late(self) -> bool:
        self.late -= 1
        return self.late >= 0

    def graph(self) -> Any:
        def begin(capture_error_mode: str) -> None:
            assert capture_error_mode == "thread_local"
            self.open = True

        def end() -> None:
            self.open = False

        def replay() -> None:
            self.replays[number] += 1

        number = len(self.replays)
        self.replays.append(0)
        return SimpleNamespace(capture_begin=begin, capture_end=end, replay=replay)


Timed = tuple[DeviceCore, Task, Sequence[Config]]


@pytest.fixture
def timed(project: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Device], Timed]:
    """A core with a timer on a device made of counters, the only part that needs a GPU; the task
    of the first launch, and its candidates, all of which have passed."""

    def start(device: Device) -> Timed:
        monkeypatch.setattr(sys, "path", list(sys.path))
        monkeypatch.delitem(sys.modules, "toy", raising=False)
        core = DeviceCore(site=project_place(project).site.to_json(), index=None)
        core._timer = GraphTimer(device, "warm")
        found = core.collect(lambda _: None)[0]
        task = Task(
            kernel=found.kernel, case=found.case, point=found.point, features=found.features
        )
        checked = core.check(task, found.candidates, None, Marks(), serial=False)
        assert all(o.reason is None for o in checked)
        return core, task, found.candidates

    return start


def test_candidates_are_sampled_in_rounds(timed: Callable[[Device], Timed]) -> None:
    core, task, candidates = timed(Device())
    for rounds in (3, 5):
        outcomes = list(core.measure(task, candidates, rounds, Marks()))
        assert [len(o.samples) for o in outcomes] == [rounds] * 3
    with pytest.raises(TuningError, match="no longer makes a launch"):
        list(core.check(replace(task, point="another"), candidates, None, Marks(), serial=True))


def test_each_sample_is_of_a_graph_of_its_own(timed: Callable[[Device], Timed]) -> None:
    device = Device()
    core, task, candidates = timed(device)
    outcomes = list(core.measure(task, candidates, 4, Marks()))
    assert sum(len(o.samples) for o in outcomes) == len(device.replays) == 12
    assert set(device.replays) == {2}  # one uploads it, one is timed


def test_what_graphs_kept_to_themselves_is_returned_between_rounds(
    timed: Callable[[Device], Timed],
) -> None:
    device = Device()
    core, task, candidates = timed(device)
    returned: list[int] = []

    def empty_cache() -> None:
        assert not device.open
        returned.append(len(device.replays))

    core._index = 0
    core._torch = SimpleNamespace(
        cuda=SimpleNamespace(empty_cache=empty_cache, synchronize=lambda: None)
    )
    list(core.measure(task, candidates, 4, Marks()))
    assert returned == [3, 3, 6, 9, 12]


def test_a_later_graph_that_cannot_be_captured_is_recorded_and_the_others_go_on(
    project: Path, timed: Callable[[Device], Timed]
) -> None:
    failing = """    RUNS.append(block)
    if RUNS.count(2) > 5 and block == 2:
        raise RuntimeError("operation not permitted when stream is capturing")
    return ["""
    file = project / "torch-ext/toy/__init__.py"
    file.write_text(file.read_text().replace("    return [", failing, 1) + "\n\nRUNS = []\n")
    device = Device(ms=1.0)  # then a graph is two runs: one tells how long it takes
    core, task, candidates = timed(device)
    outcomes = {o.config["block"]: o for o in core.measure(task, candidates, 4, Marks())}
    assert {block: len(o.samples) for block, o in outcomes.items()} == {1: 4, 2: 0, 4: 4}
    assert outcomes[2].reason == "fault"
    assert "not permitted" in outcomes[2].detail
    assert not device.open


def test_a_launch_is_told_of_before_it_runs(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that others compile it meanwhile."""
    source = TROUBLED.replace("if block == 2:", "RAN.append(n)\n    if block == 2:")
    (project / "torch-ext/toy/__init__.py").write_text("RAN = []\n" + source)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "toy", raising=False)
    core = DeviceCore(site=project_place(project).site.to_json(), index=None)
    told: list[int] = []
    found = core.collect(lambda _: told.append(len(sys.modules["toy"].RAN)))
    assert told == list(range(len(found)))


def test_a_measuring_process_imports_nothing_that_it_does_not_need() -> None:
    """It starts while a person waits; what reads projects takes half a second to import."""
    modules = ("worker", "device", "compile_server")
    names = ", ".join(f"kernel_builder.tuning.runners.{name}" for name in modules)
    code = (
        f"import sys, {names}; print({{'pydantic', 'torch', 'triton', 'jax'}} & {{*sys.modules}})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


NAMES_OF_TORCH = """
import sys
from kernel_builder.tuning import Case, workload
from kernel_builder.tuning.collect import filled_memory, one_thread
import torch

case = Case(n=1000)
made = workload(call=max, cases=[case])(lambda n, device: (torch.rand(n, device=device),))
(first,), _ = made.arguments(case, "cpu")
torch.rand(3)
(second,), _ = made.arguments(case, "cpu")
assert torch.equal(first, second)
with filled_memory(), one_thread():
    assert torch.empty(1000).isnan().all()
assert not torch.are_deterministic_algorithms_enabled()
print([n for n in ("torch._dynamo", "torch._inductor.config", "sympy") if n in sys.modules])
"""


def test_making_inputs_does_not_import_the_compiler_of_torch() -> None:
    """`torch.manual_seed` and the like do, for seconds, before the first launch is found."""
    pytest.importorskip("torch")
    command = [sys.executable, "-c", NAMES_OF_TORCH]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


WORKLOADS = """
import torch
from rms_norm import rms_norm
from kernel_builder.tuning import Case, workload


def both(x, weight, dy):
    x, weight = x.detach().requires_grad_(), weight.detach().requires_grad_()
    y = rms_norm(x, weight)
    return y.detach(), *torch.autograd.grad(y, (x, weight), dy)


def reference(x, weight, dy):
    x, weight = x.detach().requires_grad_(), weight.detach().requires_grad_()
    y = torch.nn.functional.rms_norm(x, weight.shape, weight, 1e-6)
    return y.detach(), *torch.autograd.grad(y, (x, weight), dy)


@workload(call=both, reference=reference, tolerance=1e-4, cases=[Case(M=3, N=100)])
def train(M, N, device):
    x, dy = torch.randn(M, N, device=device), torch.randn(M, N, device=device)
    return x, torch.randn(N, device=device), dy
"""


def test_triton_kernels_of_one_call_are_found_and_checked_backward_too(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    file = tmp_path / "workloads.py"
    file.write_text(WORKLOADS)
    site = project_place(EXAMPLES / "rms-norm", workloads=file).site
    found, outcomes = checked(site, pick=1, interpret=True)
    assert found.kernel == "kernels.rms_norm_backward"
    assert {"M", "N", "x_ptr_dtype"} <= set(found.features)
    assert len(outcomes) == len(found.candidates) > 5
    assert all(o.reason is None for o in outcomes)


def test_a_sample_that_holds_host_time_is_taken_again_after_a_longer_wait() -> None:
    device = Device()
    timer = GraphTimer(device, "warm")
    timed = timer.capture(lambda: None)
    device.late = 2
    device.waits.clear()
    assert timer.sample(timed) == pytest.approx(device.ms / timed.launches)
    first, second, third = device.waits
    assert (second, third) == (2 * first, 4 * first)


def test_a_host_that_is_always_late_is_an_error() -> None:
    device = Device()
    timer = GraphTimer(device, "warm")
    timed = timer.capture(lambda: None)
    device.late = 1000
    with pytest.raises(TuningError, match="too busy"):
        timer.sample(timed)


@pytest.mark.parametrize(("ms", "launches"), [(0.001, 40), (0.06, 6), (0.9, 2), (1.0, 1)])
def test_a_graph_holds_more_launches_of_short_kernels(ms: float, launches: int) -> None:
    runs: list[int] = []
    timed = GraphTimer(Device(ms=ms), "warm").capture(lambda: runs.append(1))
    assert timed.launches == launches
    assert len(runs) == 1 + launches


def test_a_launch_that_cannot_be_captured_leaves_no_open_capture() -> None:
    device = Device()
    timer = GraphTimer(device, "warm")

    def run() -> None:
        if device.open:
            raise RuntimeError("operation not permitted when stream is capturing")

    with pytest.raises(RuntimeError, match="not permitted"):
        timer.capture(run)
    assert not device.open


@given(st.integers(1, 6), st.integers(1, 5))
def test_rounds_are_interleaved(count: int, rounds: int) -> None:
    order: list[int] = []
    ticks: list[int] = []

    def sample(index: int) -> float:
        order.append(index)
        return float(index)

    samples = interleaved(sample, count, rounds, tick=lambda: ticks.append(1))
    assert samples == [[float(i)] * rounds for i in range(count)]
    assert len(ticks) == rounds
    for start in range(0, len(order), count):  # each round has every configuration once
        assert sorted(order[start : start + count]) == list(range(count))


def test_one_that_cannot_be_sampled_is_not_asked_again() -> None:
    asked: list[int] = []

    def sample(index: int) -> float | None:
        asked.append(index)
        return None if index == 1 and asked.count(1) == 2 else 1.0

    samples = interleaved(sample, 3, 4, tick=lambda: None)
    assert [len(of_one) for of_one in samples] == [4, 1, 4]
    assert asked.count(1) == 2


def test_differences_of_nested_results() -> None:
    torch = pytest.importorskip("torch")
    nan = float("nan")
    a = torch.tensor([1.0, 2.0, nan])
    assert difference([a, 3], [a.clone(), 3], 1e-3) is None
    assert difference([a + 1e-4, 3], [a, 3], 1e-3) is None
    assert "largest error" in (difference([a * 1.1], [a], 1e-3) or "")
    assert "finite" in (difference([torch.tensor([1.0, nan, nan])], [a], 1e-3) or "")
    assert "shape" in (difference(a[:2], a, 1e-3) or "")
    assert difference({"x": 1}, {"x": 2}, 1e-3) == "['x']: 1 instead of 2"
    assert difference(torch.tensor([1]), torch.tensor([2]), 1.0) == "result: values differ"
    assert difference([1], [1, 2], 1e-3) == "result: [1] instead of [1, 2]"
    kept = snapshot((a, [a]))
    a.zero_()
    assert difference(kept, (a, [a]), 1e-3) is not None


def test_differences_of_numpy_arrays() -> None:
    numpy = pytest.importorskip("numpy")
    a = numpy.array([1.0, 2.0], dtype=numpy.float32)
    assert difference(a + 1e-5, a, 1e-3) is None
    assert difference(a * 2, a, 1e-3) is not None
    assert difference(numpy.array([1]), numpy.array([2]), 1.0) == "result: values differ"
