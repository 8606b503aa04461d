"""Work on several cores gives what work on one does."""

from __future__ import annotations

import math
import signal
from concurrent.futures.process import BrokenProcessPool

import pytest

from kernel_builder.tuning import spread as module
from kernel_builder.tuning.spread import spread


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two cores, and whatever is left after the first item is worth new processes."""
    monkeypatch.setattr(module, "_WORTH", 0.0)
    monkeypatch.setattr(module, "usable_cores", lambda: 2)


def test_short_work_is_done_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_in_processes", None)
    assert spread(math.sqrt, [1.0, 4.0, 9.0]) == [1.0, 2.0, 3.0]
    assert spread(math.sqrt, []) == []


@pytest.mark.usefixtures("eager")
def test_long_work_is_done_in_processes_that_leave_ctrl_c_to_this_one() -> None:
    here, *others = spread(signal.getsignal, [signal.SIGINT] * 4)
    assert here is signal.getsignal(signal.SIGINT)
    assert others == [signal.SIG_IGN] * 3


@pytest.mark.usefixtures("eager")
def test_where_no_process_starts_the_work_is_done_here(monkeypatch: pytest.MonkeyPatch) -> None:
    class Pool:
        def __init__(self, *_: object, **__: object) -> None:
            pass

        def map(self, *_: object) -> None:
            raise BrokenProcessPool

        def shutdown(self, **_: object) -> None:
            pass

    monkeypatch.setattr(module, "ProcessPoolExecutor", Pool)
    assert spread(math.sqrt, [1.0, 4.0, 9.0]) == [1.0, 2.0, 3.0]
