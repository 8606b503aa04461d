"""What was asked of the Hub and what it answered: one record a request, the body's end included."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kernelhub.errors import StoreError

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRecord:
    """One request.

    Attributes:
        time: when it began, seconds since the epoch.
        method: in capitals.
        path: as it came, percent-encoded, without the query.
        query: as it came.
        status: 0 where no answer was begun.
        bytes: of the answer's body that were sent.
        seconds: until the last piece of the answer was ready.
        user: name of the token, "anonymous" without one.
        agent: the client's User-Agent.
        range: the Range header, if there was one.
    """

    time: float
    method: str
    path: str
    query: str
    status: int
    bytes: int
    seconds: float
    user: str
    agent: str
    range: str | None = None

    def line(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self), ensure_ascii=True)


Sink = Callable[[AccessRecord], None]


class AccessLog:
    """ASGI middleware that hands a record of each request to `sink`.

    The record is made just before the last piece of the answer leaves, so a client that has its
    answer finds the request in the log.

    Attributes:
        open: requests that have begun and not ended.
    """

    def __init__(self, app: ASGIApp, sink: Sink) -> None:
        self._app = app
        self._sink = sink
        self.open = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = _Request(scope, send, self._sink)
        self.open += 1
        try:
            await self._app(scope, receive, request.send)
        finally:
            request.record()
            self.open -= 1


class _Request:
    """One request while it is answered: counts what is sent, and is recorded once."""

    def __init__(self, scope: Scope, send: Send, sink: Sink) -> None:
        self._scope = scope
        self._send = send
        self._sink = sink
        self._time, self._clock = time.time(), time.perf_counter()
        self._status = self._bytes = 0
        self._recorded = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
        elif message["type"] == "http.response.body":
            self._bytes += len(message.get("body", b""))
            if not message.get("more_body", False):
                self.record()
        await self._send(message)

    def record(self) -> None:
        if self._recorded:
            return
        self._recorded = True
        scope = self._scope
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        self._sink(
            AccessRecord(
                time=round(self._time, 3),
                method=scope["method"],
                path=scope["raw_path"].decode("latin-1"),
                query=scope["query_string"].decode("latin-1"),
                status=self._status,
                bytes=self._bytes,
                seconds=round(time.perf_counter() - self._clock, 6),
                user=scope.get("kernelhub.user", "anonymous"),
                agent=headers.get(b"user-agent", ""),
                range=headers.get(b"range"),
            )
        )


class LogFile:
    """A sink that appends JSON lines to a file."""

    def __init__(self, path: Path) -> None:
        try:
            self._file = path.open("a", encoding="utf-8", buffering=1)
        except OSError as error:
            raise StoreError(f"cannot write the access log: {error}") from error
        self._lock = threading.Lock()

    def __call__(self, record: AccessRecord) -> None:
        with self._lock:
            try:
                self._file.write(record.line() + "\n")
            except OSError as error:  # a full disk must not take the Hub down
                logger.warning("access log: %s", error)

    def close(self) -> None:
        self._file.close()
