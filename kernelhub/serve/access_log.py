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
        seconds: until the last byte was sent.
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
    """ASGI middleware that hands a record of each request to `sink`."""

    def __init__(self, app: ASGIApp, sink: Sink) -> None:
        self._app = app
        self._sink = sink

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, clock = time.time(), time.perf_counter()
        status = sent = 0

        async def counting(message: Message) -> None:
            nonlocal status, sent
            if message["type"] == "http.response.start":
                status = message["status"]
            elif message["type"] == "http.response.body":
                sent += len(message.get("body", b""))
            await send(message)

        try:
            await self._app(scope, receive, counting)
        finally:
            headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
            self._sink(
                AccessRecord(
                    time=round(began, 3),
                    method=scope["method"],
                    path=scope["raw_path"].decode("latin-1"),
                    query=scope["query_string"].decode("latin-1"),
                    status=status,
                    bytes=sent,
                    seconds=round(time.perf_counter() - clock, 6),
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
