"""JAX launches found by tracing, and timed by a loop."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_builder.tuning.collect import OpenSite
from kernel_builder.tuning.site import Site
from kernelhub.errors import TuningError

jax = pytest.importorskip("jax")

from kernel_builder.tuning.runner import Task  # noqa: E402
from kernel_builder.tuning.runners import jax_device  # noqa: E402
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
