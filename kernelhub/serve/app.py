"""The ASGI application: find the route, identify the caller, read the body, answer.

Handlers do file work and run in threads; those that stream a body read it as it comes.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from kernelhub.errors import StoreError

from . import routes
from .access_log import AccessLog, Sink
from .auth import Tokens
from .call import Call, Hub
from .lfs_links import LinkSigner
from .limits import Limits
from .organisations import read_organisations
from .refusal import Refusal, bad_request, too_large
from .repositories import Repositories

logger = logging.getLogger(__name__)

_FULL = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))


def create_app(
    root: Path,
    *,
    tokens: Tokens | Mapping[str, str] | Path | None = None,
    trusted: Iterable[str] = (),
    read_only: bool = False,
    limits: Limits | None = None,
    access_log: Sink | None = None,
) -> ASGIApp:
    """A Hub that serves the folder `root`, which is made where it is missing.

    Args:
        root: folder of the repositories; `orgs.toml` in it describes organisations.
        tokens: a tokens file, or secrets to "read" or "write"; None: the Hub is open to all.
        trusted: organisations whose kernels clients may run without being asked about.
        read_only: refuse every write with 403.
        limits: sizes; see `Limits`.
        access_log: called with a record of each request, from the server's thread.

    Raises:
        FormatError: the tokens file or `orgs.toml` is malformed.
        StoreError: the folder cannot be used.
    """
    limits = limits or Limits()
    root = Path(root).absolute()
    try:
        root.mkdir(parents=True, exist_ok=True)
        repositories = Repositories(root, lock_seconds=limits.lock_seconds)
        signer = LinkSigner.at(root / ".hub" / "links.key", seconds=limits.link_seconds)
    except OSError as error:
        raise StoreError(f"cannot keep a Hub in {root}: {error}") from error
    hub = Hub(
        repositories=repositories,
        tokens=_tokens(tokens),
        organisations=read_organisations(root / "orgs.toml", trusted),
        signer=signer,
        limits=limits,
        read_only=read_only,
    )
    app = _Application(hub)
    return app if access_log is None else AccessLog(app, access_log)


def _tokens(tokens: Tokens | Mapping[str, str] | Path | None) -> Tokens:
    if isinstance(tokens, Tokens):
        return tokens
    if isinstance(tokens, Path):
        return Tokens.read(tokens)
    return Tokens() if tokens is None else Tokens.of(tokens)


class _Application:
    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
        elif scope["type"] == "http":
            response = await self._answer(scope, receive)
            await response(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive) -> Response:
        request = Request(scope, receive)
        try:
            return await self._handle(scope, request)
        except Refusal as refusal:
            return refusal.response()
        except ClientDisconnect:
            return bad_request("the client went away in the middle of the body").response()
        except OSError as error:
            if error.errno not in _FULL:
                raise
            logger.error("%s", error)  # noqa: TRY400 - the place in the code says nothing here
            return Refusal(507, "The Hub's disk is full").response()

    async def _handle(self, scope: Scope, request: Request) -> Response:
        who = self._hub.tokens.identify(request.headers.get("authorization"))
        scope["kernelhub.user"] = who.name
        route, args = routes.find(scope["method"], scope["raw_path"].decode("latin-1"))
        call = Call(hub=self._hub, request=request, args=args, who=who)
        if route.stream is not None:
            return await route.stream(call)
        assert route.handler is not None  # noqa: S101 - each route has one of the two
        body = await _read(request, self._hub.limits.json_bytes)
        return await run_in_threadpool(route.handler, replace(call, body=body))


async def _read(request: Request, limit: int) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise too_large("the body", limit)
    return bytes(body)


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
