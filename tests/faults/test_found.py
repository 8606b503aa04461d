"""What the fault suite has found, each kept as a test of its own."""

from __future__ import annotations

import contextlib
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.faultlab.lab import REPO, Clean, Lab
from kernelhub import get_kernel, has_kernel
from kernelhub.errors import HubRateLimited, HubUnavailable, StoreError
from kernelhub.serve.faults import Fault
from kernelhub.serve.testing import RunningHub
from kernelhub.settings import scope

Laboratory = tuple[Lab, dict[str, Clean]]
TRUST = {"trust_remote_code": True}


@pytest.fixture
def hub(laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch) -> RunningHub:
    found = laboratory[0].hub
    monkeypatch.setenv("HF_ENDPOINT", found.url)
    found.faults.replace([])
    found.clear()
    return found


@pytest.mark.usefixtures("cut_answers")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_json_that_drips_is_left_at_the_deadline(hub: RunningHub) -> None:
    hub.faults.replace([Fault(effect="drip", path="/refs$", piece=1, seconds=0.2)])
    began = time.monotonic()
    with scope(timeout=1.0), pytest.raises(HubUnavailable, match="in the time allowed"):
        get_kernel(REPO, version=1, **TRUST)
    assert time.monotonic() - began < 4
    hub.faults.replace([])


@pytest.fixture
def dripping() -> Iterator[str]:
    """A server whose answers begin, and whose headers never end."""
    listening, ended = socket.create_server(("127.0.0.1", 0)), threading.Event()

    def answer(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.sendall(b"HTTP/1.1 200 OK\r\n")
            while not ended.wait(0.2):
                connection.sendall(b"X: y\r\n")

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection = listening.accept()[0]
                threading.Thread(target=answer, args=(connection,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    ended.set()
    listening.close()


def test_headers_that_drip_are_left_at_the_deadline(dripping: str) -> None:
    began = time.monotonic()
    with scope(endpoint=dripping, timeout=1.0), pytest.raises(HubUnavailable, match="allowed"):
        get_kernel(REPO, version=1, **TRUST)
    assert time.monotonic() - began < 4


def test_a_name_server_that_hangs_is_left_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()

    def hang(*_: object, **__: object) -> None:
        ended.wait(30)
        raise socket.gaierror("no answer")

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    began = time.monotonic()
    with (
        scope(endpoint="http://hub.invalid", timeout=1.0),
        pytest.raises(HubUnavailable, match="allowed"),
    ):
        get_kernel(REPO, version=1, **TRUST)
    took = time.monotonic() - began
    ended.set()
    assert took < 4


@pytest.mark.parametrize("headers", [{}, {"Retry-After": "0"}, {"RateLimit": '"api";r=0;t=0'}])
def test_a_hub_that_says_later_is_asked_less_and_less(
    hub: RunningHub, headers: dict[str, str]
) -> None:
    hub.faults.replace([Fault(effect="status", status=429, headers=headers)])
    with scope(timeout=2.0), pytest.raises(HubRateLimited):
        get_kernel(REPO, version=1, **TRUST)
    assert 2 <= len(hub.faults.injected) <= 6
    hub.faults.replace([])


@pytest.mark.parametrize(
    ("status", "kind"), [(503, HubUnavailable), (429, HubRateLimited)], ids=str
)
def test_a_hub_that_is_down_is_not_called_distrust(
    hub: RunningHub, status: int, kind: type[Exception]
) -> None:
    hub.faults.replace([Fault(effect="status", status=status, path="/overview")])
    with scope(timeout=1.0), pytest.raises(kind):
        get_kernel(REPO, version=1)
    with scope(timeout=1.0):
        assert isinstance(has_kernel(REPO, version=1).error, kind)
    hub.faults.replace([])


def test_whether_a_publisher_is_trusted_is_asked_once(laboratory: Laboratory) -> None:
    lab, clean = laboratory
    lab.fresh("get")
    lab.hub.clear()
    start = time.monotonic() + 0.5
    outcomes = lab.together([{"operation": "get", "start_at": start} for _ in range(6)])
    assert all(outcome["ok"] for outcome in outcomes), outcomes
    assert len(lab.hub.requests) == clean["get"].requests


def test_no_temporary_folder(
    hub: RunningHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "is-not-there"))
    with pytest.raises(StoreError, match="TMPDIR"):
        get_kernel(REPO, version=1, **TRUST)
