"""A faulty Hub, for tests of clients: rules that spoil chosen answers.

A rule says which requests it means (method, path, the how-manieth of those, or a seeded chance)
and what happens to them. The Hub behind is unharmed; unless the fault replaces the answer, the
request has been carried out. Rules can be changed while the Hub runs.
"""

from __future__ import annotations

import asyncio
import random
import re
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

Effect = Literal[
    "status", "garbage", "truncate", "corrupt", "stall", "drip", "reset", "lost_answer"
]


class _Cut(Exception):
    """Raised where an answer breaks off; caught by the wrapper, which closes the connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One rule.

    Attributes:
        effect: what happens:
            status: answer `status` with `headers` and `body` instead of asking the Hub;
            garbage: the same with status 200 and a body that is no protocol;
            truncate: announce the whole body, close the connection after `after` bytes of it;
            corrupt: a body of the right length with the byte at `after` changed;
            stall: send `after` bytes, then nothing for `seconds`, then the rest;
            drip: send the body in pieces of `piece` bytes, `seconds` apart;
            reset: close the connection without an answer; the Hub is not asked;
            lost_answer: as reset, but the Hub has carried the request out.
        method: regular expression that the whole method matches.
        path: regular expression searched for in the raw path, with `?query` where there is one.
        nth: spoil only these matching requests, counted from 1; empty: all of them.
        above_rate: spoil only what goes beyond so many matching requests in any one second, as a
            rate limit does; 0: no such limit.
        probability: chance that a matching request is spoiled, from the seed of `Faults`.
    """

    effect: Effect
    method: str = ".*"
    path: str = ""
    nth: Sequence[int] = ()
    above_rate: int = 0
    probability: float = 1.0
    status: int = 503
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    after: int = 0
    seconds: float = 0.0
    piece: int = 1024


class Faults:
    """The rules in force. The first that applies to a request is taken."""

    def __init__(self, rules: Sequence[Fault] = (), *, seed: int = 0) -> None:
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self.injected: list[tuple[Fault, str]] = []
        self.replace(rules, seed=seed)

    def replace(self, rules: Sequence[Fault], *, seed: int = 0) -> None:
        """Take these rules instead; counts and chances start anew."""
        with self._lock:
            self._rules = tuple(rules)
            self._seen = [0] * len(self._rules)
            self._passed: list[deque[float]] = [deque() for _ in self._rules]
            self._random = random.Random(seed)  # noqa: S311 - repeatable, not secret
            self.injected.clear()

    def stop(self) -> None:
        """Let stalled answers go on, so that the server can end."""
        self._stopping.set()

    def around(self, app: ASGIApp) -> ASGIApp:
        """The application with the rules around it."""
        return _Spoiled(app, self)

    def choose(self, method: str, path: str) -> Fault | None:
        """The rule for the next request of that method and path."""
        with self._lock:
            for index, rule in enumerate(self._rules):
                if not (re.fullmatch(rule.method, method) and re.search(rule.path, path)):
                    continue
                self._seen[index] += 1
                if self._applies(index, rule):
                    self.injected.append((rule, f"{method} {path}"))
                    return rule
            return None

    def _applies(self, index: int, rule: Fault) -> bool:
        if rule.nth and self._seen[index] not in rule.nth:
            return False
        if rule.above_rate and _admit(self._passed[index], rule.above_rate):
            return False
        return rule.probability >= 1 or self._random.random() < rule.probability

    async def wait(self, seconds: float) -> None:
        """Sleep, but not past the end of the server."""
        slept = 0.0
        while slept < seconds and not self._stopping.is_set():
            await asyncio.sleep(min(0.05, seconds - slept))
            slept += 0.05


def _admit(passed: deque[float], rate: int) -> bool:
    """Whether one more request fits into the last second; if so, it is counted."""
    now = time.monotonic()
    while passed and passed[0] <= now - 1:
        passed.popleft()
    if len(passed) >= rate:
        return False
    passed.append(now)
    return True


class _Spoiled:
    def __init__(self, app: ASGIApp, faults: Faults) -> None:
        self._app = app
        self._faults = faults

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        fault = None
        if scope["type"] == "http":
            query = scope["query_string"].decode("latin-1")
            path = scope["raw_path"].decode("latin-1") + (f"?{query}" if query else "")
            fault = self._faults.choose(scope["method"], path)
        if fault is None:
            await self._app(scope, receive, send)
        elif fault.effect in ("status", "garbage"):
            await _replacement(fault)(scope, receive, send)
        elif fault.effect == "reset":
            await _disconnect(receive, flush=False)
        elif fault.effect == "lost_answer":
            await self._app(scope, receive, _discard)
            await _disconnect(receive, flush=False)
        else:
            try:
                await self._app(scope, receive, _Spoiler(fault, self._faults, send))
            except _Cut:
                await _disconnect(receive, flush=True)


async def _disconnect(receive: Receive, *, flush: bool) -> None:
    """Close the client's connection; without `flush`, by a TCP reset.

    ASGI has no message for this. Under uvicorn `receive` is a method of the request's cycle, which
    knows its transport.
    """
    cycle: Any = receive.__self__  # type: ignore[attr-defined]
    if not flush:
        linger = struct.pack("ii", 1, 0)  # on, zero seconds: close sends RST
        sock = cycle.transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        cycle.transport.abort()
    else:
        cycle.transport.close()
    end = time.monotonic() + 5
    while not cycle.disconnected and time.monotonic() < end:
        await asyncio.sleep(0.001)


def _replacement(fault: Fault) -> Response:
    if fault.effect == "status":
        return Response(fault.body, fault.status, dict(fault.headers))
    garbage = fault.body or b"<html>\x00\xff this is not the answer you look for"
    return Response(garbage, 200, dict(fault.headers), media_type="text/html")


async def _discard(message: Message) -> None:
    """A client that never hears the answer."""


class _Spoiler:
    """Stands between the application and the client and changes the body on its way."""

    def __init__(self, fault: Fault, faults: Faults, send: Send) -> None:
        self._fault = fault
        self._faults = faults
        self._send = send
        self._sent = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] != "http.response.body":
            await self._send(message)
            return
        body, more = message.get("body", b""), message.get("more_body", False)
        effect = self._fault.effect
        if effect == "drip":
            await self._drip(body)
            body = b""
        elif effect == "corrupt":
            body = self._corrupted(body)
        elif self._sent <= self._fault.after < self._sent + len(body):
            head = body[: self._fault.after - self._sent]
            await self._send({"type": "http.response.body", "body": head, "more_body": True})
            if effect == "truncate":
                raise _Cut
            await self._faults.wait(self._fault.seconds)
            self._sent += len(head)
            body = body[len(head) :]
        self._sent += len(body)
        await self._send({"type": "http.response.body", "body": body, "more_body": more})

    def _corrupted(self, body: bytes) -> bytes:
        at = self._fault.after - self._sent
        if not 0 <= at < len(body):
            return body
        return body[:at] + bytes([body[at] ^ 0x55]) + body[at + 1 :]

    async def _drip(self, body: bytes) -> None:
        for start in range(0, len(body), self._fault.piece):
            piece = body[start : start + self._fault.piece]
            await self._send({"type": "http.response.body", "body": piece, "more_body": True})
            await self._faults.wait(self._fault.seconds)
