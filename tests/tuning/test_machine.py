"""Starting the runners of a machine, on one that has none."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_builder.tuning import machine
from kernel_builder.tuning.runners.compilers import Compilers
from kernel_builder.tuning.runners.process import ProcessRunner
from kernel_builder.tuning.tune import project_place
from kernelhub.errors import TuningError


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is started and closed, in order; two GPUs are seen."""
    said: list[str] = []
    for kind in (ProcessRunner, Compilers):
        for method in ("start", "close"):
            text = f"{method} {kind.__name__}"
            monkeypatch.setattr(kind, method, lambda _, text=text: said.append(text))

    def count() -> int:
        said.append("count")
        return 2

    monkeypatch.setattr(machine, "gpu_count", count)
    monkeypatch.setattr(machine, "usable_cores", lambda: 16)
    return said


def test_everything_starts_before_anything_is_waited_for(project: Path, told: list[str]) -> None:
    runners = machine.device_runners(project_place(project).site, None, "warm")
    assert told == ["start ProcessRunner", "start Compilers", "count", "start ProcessRunner"]
    assert runners[0]._compilers is runners[1]._compilers is not None


def test_one_gpu_is_not_counted(project: Path, told: list[str]) -> None:
    """Counting imports torch, and the process that measures finds out by itself."""
    assert len(machine.device_runners(project_place(project).site, 1, "warm")) == 1
    assert "count" not in told


def test_too_few_gpus_end_what_was_started(project: Path, told: list[str]) -> None:
    with pytest.raises(TuningError, match="--gpus 3, but torch sees 2"):
        machine.device_runners(project_place(project).site, 3, "warm")
    assert told[-1] == "close ProcessRunner"
