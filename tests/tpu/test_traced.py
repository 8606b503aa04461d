"""JAX launches found by tracing, and timed by a loop."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kernel_builder.tuning.collect import OpenSite
from kernel_builder.tuning.site import Site
from kernelhub.errors import TuningError

jax = pytest.importorskip("jax")

from kernel_builder.tuning.runner import Task  # noqa: E402
from kernel_builder.tuning.runners import jax_device  # noqa: E402
from kernel_builder.tuning.timing_jax import JaxTimer  # noqa: E402
from kernel_builder.tuning.traced import Program, TracedSite  # noqa: E402
from kernelhub.formats.tpu import CHIPS  # noqa: E402

SAMPLE = Path(__file__).parent / "sample"
SITE = Site(
    paths=(str(SAMPLE / "jax-ext"),),
    package="tiled",
    workloads=str(SAMPLE / "tuning/workloads.py"),
    framework="jax",
)


class NoMarks:
    def begin(self, config) -> None: ...

    def end(self, config) -> None: ...


@pytest.fixture
def cpu_core(monkeypatch):
    """The measuring core with this machine's CPU in the place of an accelerator."""
    monkeypatch.setattr(jax_device, "_accelerator", lambda jax, index: jax.devices("cpu")[index])
    monkeypatch.setattr(jax_device, "_facts", lambda expected: CHIPS[0].facts)
    # What is tuned is not interpreted; here nothing else can run.
    monkeypatch.setattr("kernel_builder.tuning.traced._INTERPRET", "no such argument")
    return jax_device.JaxDeviceCore(site=SITE.to_json(), index=0)


def test_launches_are_found_without_making_their_inputs() -> None:
    site = TracedSite(OpenSite(SITE, "cpu"))
    found = site.collect()
    assert [f.features["x_dim0"] for f in found] == [64, 4096, 4096, 1 << 20]
    assert [(f.weight, f.held_out) for f in found][1::2] == [(2.0, False), (1.0, True)]
    assert found[0].kernel == "tiled"
    assert found[0].candidates[0] == {"block_m": 64, "wrong": False}
    live = site.find(found[3].case, "tiled", found[3].point)
    assert live.call.arguments["interpret"] is False  # the public function said True
    assert [shape.shape for shape in Program.of(live).shapes] == [(1 << 20, 16384), (1, 16384)]


def test_a_case_that_changes_is_the_authors_fault() -> None:
    site = TracedSite(OpenSite(SITE, "cpu"))
    with pytest.raises(TuningError, match="no longer makes a launch"):
        site.find("forward/M=64 N=256", "tiled", "sha256:0")


def test_configurations_are_checked_and_timed(cpu_core) -> None:
    found = cpu_core.collect(lambda _: None)[0]
    task = Task(kernel=found.kernel, case=found.case, point=found.point, features=found.features)
    wrong = {"block_m": 64, "wrong": True}
    configs = [found.candidates[0], {"block_m": 32, "wrong": False}, wrong]
    outcomes = {
        (o.config["block_m"], o.config["wrong"]): o
        for o in cpu_core.check(task, configs, None, NoMarks(), serial=False)
    }
    assert outcomes[64, True].reason == "wrong_result"
    assert outcomes[64, False].reason is None
    assert outcomes[32, False].reason is None
    timed = list(cpu_core.measure(task, configs[:2], 3, NoMarks()))
    assert [len(o.samples) for o in timed] == [3, 3]
    assert all(0 < sample < 1000 for o in timed for sample in o.samples)


def test_a_wrong_default_is_found_by_the_reference(cpu_core) -> None:
    found = cpu_core.collect(lambda _: None)[0]
    task = Task(kernel=found.kernel, case=found.case, point=found.point, features=found.features)
    wrong = {"block_m": 64, "wrong": True}
    (outcome,) = cpu_core.check(task, [wrong], None, NoMarks(), serial=False)
    assert outcome.reason == "wrong_result"


def test_what_the_launch_itself_refuses_is_pruned(cpu_core) -> None:
    """As dispatch passes it over, so does the fit."""
    found = cpu_core.collect(lambda _: None)[2]
    task = Task(kernel=found.kernel, case=found.case, point=found.point, features=found.features)
    config = {"block_m": 65536, "wrong": False}
    (outcome,) = cpu_core.check(task, [config], None, NoMarks(), serial=False)
    assert (outcome.reason, outcome.pruned) == ("out_of_resources", True)


def test_the_device_is_used_only_in_turn(cpu_core, tmp_path, monkeypatch) -> None:
    """Cores that share a device compile side by side; what runs on it holds their lock."""
    core = jax_device.JaxDeviceCore(site=SITE.to_json(), index=0, turn=str(tmp_path / "turn"))
    found = core.collect(lambda _: None)[0]
    task = Task(kernel=found.kernel, case=found.case, point=found.point, features=found.features)
    held = []

    def watched(function):
        def watching(*args):
            held.append(core._lock.is_locked)
            return function(*args)

        return watching

    timer = core._timer
    monkeypatch.setattr(timer, "sample", watched(timer.sample))
    monkeypatch.setattr(timer, "capture", watched(timer.capture))
    monkeypatch.setattr(
        jax_device.Chain, "__call__", watched(jax_device.Chain.__call__), raising=True
    )
    configs = [found.candidates[0], {"block_m": 32, "wrong": False}]
    assert [o.reason for o in core.check(task, configs, None, NoMarks(), serial=False)] == [
        None
    ] * 2
    list(core.measure(task, configs, 3, NoMarks()))
    assert len(held) >= 10
    assert all(held)
    assert not core._lock.is_locked


def _counted(shape, seen):
    """A kernel that the compiler may leave out, join and move as it may any other."""

    def kernel(x):
        seen.append(1)
        return np.zeros(shape, np.float32)

    result = jax.ShapeDtypeStruct(shape, "float32")
    return lambda x: jax.pure_callback(kernel, result, x)


@pytest.mark.parametrize("results", [[(8,)], [(4,)], [(8,), (3,)], [(8,), ()]])
def test_no_launch_of_a_chain_is_left_out(results) -> None:
    """Whether a result can stand in for an argument, none can, or one that nothing waits for."""
    seen: list[int] = []
    kernels = [_counted(shape, seen) for shape in results]
    x = jax.numpy.ones(8)
    chain = JaxTimer(jax).chain(lambda x, w: [kernel(x * w) for kernel in kernels], [x, x])
    first = chain(x, x)
    jax.block_until_ready(first)
    timed = chain.launches * len(results)
    assert len(seen) == timed
    assert [found.shape for found in first] == results
    assert chain.launches == 251


def test_a_compiler_that_leaves_launches_out_is_noticed(monkeypatch) -> None:
    timer, x = JaxTimer(jax), jax.numpy.ones(8)
    kernel = _counted((4,), [])
    monkeypatch.setattr(
        timer, "_program", lambda launch, *more, **named: lambda never, x: launch(x)
    )
    with pytest.raises(TuningError, match="leaves out launches"):
        timer.chain(lambda x: kernel(x), [x])


def test_a_chain_of_large_launches_is_short() -> None:
    x = jax.ShapeDtypeStruct((1 << 28,), "float32")
    assert JaxTimer(jax).chain(lambda x: x + 1, [x]).launches == 3


def test_results_are_compared_where_they_are() -> None:
    from kernel_builder.tuning.compare_jax import Agreement

    jnp = jax.numpy
    good = (jnp.array([1.0, jnp.inf, -4.0]), {"n": jnp.array([1, 2])})
    agreement = Agreement(jax, good)
    assert agreement.difference(good, good, 0.0) is None
    near = (jnp.array([1.01, jnp.inf, -4.0]), good[1])
    assert agreement.difference(near, good, 0.01) is None
    assert "[0]: largest error 0.0025" in agreement.difference(near, good, 0.001)
    finite = (jnp.array([1.0, 3.0, -4.0]), good[1])
    assert "[0]: values differ" in agreement.difference(finite, good, 1.0)
    other = (good[0], {"n": jnp.array([1, 3])})
    assert "[1]['n']: values differ" in agreement.difference(other, good, 1.0)
