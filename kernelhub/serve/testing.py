"""A live Hub for tests and benchmarks: in a thread of this process, or in a process of its own."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from starlette.types import ASGIApp

from kernelhub.errors import HubUnavailable

from .access_log import AccessLog, AccessRecord
from .app import create_app
from .auth import Tokens
from .faults import Fault, Faults
from .limits import Limits
from .server import listen, make_server, url_of

_START_SECONDS = 30.0
_SETTLE_SECONDS = 0.5


class RunningHub:
    """A Hub that answers at `url`.

    Attributes:
        url: its address, no trailing slash: a value for HF_ENDPOINT.
        root: the folder that it serves.
        faults: the rules in force; may be changed while it runs.
        app: what the server runs.
    """

    def __init__(self, url: str, root: Path, faults: Faults, app: ASGIApp) -> None:
        self.url = url
        self.root = root
        self.faults = faults
        self._records: list[AccessRecord] = []
        self.app = AccessLog(faults.around(app), self._records.append)

    @property
    def requests(self) -> list[AccessRecord]:
        """What was asked so far, in the order in which the answers ended.

        Waits a moment for requests that are being answered, because a connection that breaks off is
        seen by its client before it is recorded here.
        """
        end = time.monotonic() + _SETTLE_SECONDS
        while self.app.open and time.monotonic() < end:
            time.sleep(0.001)
        return list(self._records)

    def clear(self) -> None:
        """Forget the requests so far."""
        self._records.clear()


@contextmanager
def running_hub(
    root: Path,
    *,
    tokens: Tokens | Mapping[str, str] | Path | None = None,
    trusted: Iterable[str] = (),
    faults: Sequence[Fault] = (),
    read_only: bool = False,
    limits: Limits | None = None,
    port: int = 0,
) -> Iterator[RunningHub]:
    """Run a Hub in a thread of this process, on a free port of the loopback interface.

    Raises:
        InputError: the port is in use.
        HubUnavailable: it did not start.
    """
    rules = Faults(faults)
    app = create_app(root, tokens=tokens, trusted=trusted, read_only=read_only, limits=limits)
    sock = listen("127.0.0.1", port)
    hub = RunningHub(url_of(sock), Path(root), rules, app)
    server = make_server(hub.app)
    thread = threading.Thread(
        target=server.run, args=([sock],), name="kernelhub-serve", daemon=True
    )
    thread.start()
    try:
        _wait_until(lambda: server.started, lambda: not thread.is_alive())
        yield hub
    finally:
        server.should_exit = True
        rules.stop()
        thread.join(timeout=15)
        sock.close()


@contextmanager
def hub_process(root: Path, *options: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run `kernelhub serve` as a process of its own; gives its URL and the process.

    For measurements of memory and for tests that kill it.

    Args:
        options: more options of the command, such as "--read-only".

    Raises:
        HubUnavailable: it did not start; the text is what it said.
    """
    command = [sys.executable, "-m", "kernelhub.serve", "--root", os.fspath(root), "--port", "0"]
    path = os.pathsep.join(entry for entry in sys.path if entry)
    said = tempfile.TemporaryFile()  # noqa: SIM115 - closed below; a pipe that nobody reads fills up
    process = subprocess.Popen(
        [*command, *options],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=said,
        text=True,
    )
    assert process.stdout is not None  # noqa: S101 - asked for above
    try:
        line = process.stdout.readline()
        urls = [word for word in line.split() if word.startswith("http://")]
        if not urls:
            process.wait(_START_SECONDS)
            said.seek(0)
            reason = said.read().decode("utf-8", "replace").strip()
            raise HubUnavailable(f"the Hub did not start: {reason or 'it said nothing'}")
        yield urls[0], process
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        process.kill()
        process.wait()
        process.stdout.close()
        said.close()


def _wait_until(ready: Callable[[], bool], failed: Callable[[], bool]) -> None:
    end = time.monotonic() + _START_SECONDS
    while not ready():
        if failed() or time.monotonic() > end:
            raise HubUnavailable("the embedded Hub did not start")
        time.sleep(0.005)
