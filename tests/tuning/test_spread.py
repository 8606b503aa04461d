"""Work on several cores gives what work on one does."""

from __future__ import annotations

import math
import operator
import os
import sys

import pytest

from kernel_builder.tuning import spread as module
from kernel_builder.tuning.spread import spread


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three cores, and whatever is left after the first item is worth new processes."""
    monkeypatch.setattr(module, "_WORTH", 0.0)
    monkeypatch.setattr(module, "usable_cores", lambda: 3)


def test_short_work_is_done_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_in_processes", None)
    assert spread(math.sqrt, [1.0, 4.0, 9.0]) == [1.0, 2.0, 3.0]
    assert spread(math.sqrt, []) == []


@pytest.mark.usefixtures("eager")
def test_long_work_is_done_in_processes_of_other_sessions() -> None:
    """So that Ctrl-C is not theirs to handle."""
    here, *others = spread(os.getsid, [0] * 8)
    assert here == os.getsid(0)
    assert here not in others
    assert len(set(others)) == 3
    assert spread(math.sqrt, [float(n * n) for n in range(8)]) == [float(n) for n in range(8)]


@pytest.mark.usefixtures("eager")
def test_what_the_work_prints_is_no_answer(capfd: pytest.CaptureFixture[str]) -> None:
    assert spread(print, ["here", "there"]) == [None, None]
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("here\n", "there\n")


@pytest.mark.usefixtures("eager")
def test_work_fails_as_it_would_here(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ZeroDivisionError):
        spread(operator.methodcaller("__rtruediv__", 1), [1, 0])


@pytest.mark.usefixtures("eager")
def test_where_no_process_starts_the_work_is_done_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert spread(math.sqrt, [1.0, 4.0, 9.0]) == [1.0, 2.0, 3.0]
