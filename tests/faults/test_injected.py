"""Spoiled requests, killed clients, changed files: a seeded few of `benchmarks.faults`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.faultlab import cases
from benchmarks.faultlab.cases import Case
from benchmarks.faultlab.lab import Clean, Lab

SEED = 20_240
pytestmark = [
    pytest.mark.usefixtures("cut_answers"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
Laboratory = tuple[Lab, dict[str, Clean]]


def _none_lost(laboratory: Laboratory, chosen: list[Case]) -> None:
    lab, clean = laboratory
    results = [lab.try_case(case, clean[case.operation]) for case in chosen]
    lost = [f"{result.case}: {result.why}" for result in results if result.verdict == "lost"]
    assert not lost, "\n".join(lost)
    assert any(result.injected for result in results)


def _quick(case: Case) -> bool:
    """What ends by a deadline takes as long as that; the benchmark runs those too."""
    return not case.lasting and case.name not in ("stall", "drip")


@pytest.mark.parametrize("operation", cases.OPERATIONS)
def test_a_spoiled_request(laboratory: Laboratory, operation: str) -> None:
    every = filter(_quick, cases.requests(operation, laboratory[1][operation].requests))
    _none_lost(laboratory, cases.sample(list(every), 3, SEED))


@pytest.mark.parametrize("operation", cases.OPERATIONS)
def test_a_death(laboratory: Laboratory, operation: str) -> None:
    _none_lost(laboratory, list(cases.deaths(operation, 3, SEED)))


def test_a_changed_file(laboratory: Laboratory) -> None:
    every = list(cases.on_disk(len(laboratory[0].stored())))
    _none_lost(laboratory, cases.sample(every, 4, SEED))


def test_wrong_bytes_of_the_right_length(laboratory: Laboratory) -> None:
    """Of each file, for a moment and for good; they would leave a mark if they were run."""
    count = laboratory[1]["get"].requests
    chosen = [
        Case(kind="request", operation="get", name=name, at=at, lasting=name == "wrong-body")
        for name in ("wrong-byte", "wrong-body")
        for at in range(count - 2, count + 1)
    ]
    _none_lost(laboratory, chosen)


def test_the_mark_is_left_by_wrong_bytes(laboratory: Laboratory) -> None:
    """So that the test above can fail: the bytes that are served do leave it."""
    lab = laboratory[0]
    flipped = bytes([cases.FILES["ops.py"][0] ^ 0x55]) + cases.FILES["ops.py"][1:]
    for wrong in (cases.WRONG, flipped):
        _run_with_marker(wrong, lab)
        assert lab.marker.read_text() == "ran"
        lab.marker.unlink()
    _run_with_marker(cases.FILES["ops.py"], lab)
    assert not lab.marker.exists()


def _run_with_marker(source: bytes, lab: Lab) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FAULTLAB_MARKER", str(lab.marker))
        run: Callable[..., None] = exec
        run(compile(source, "served.py", "exec"), {})
