"""`git clone` and `git fetch` over HTTP, by dulwich's own server side. Pushing is not offered."""

from __future__ import annotations

import io
import os
import tempfile
import zlib
from collections.abc import Iterator
from typing import IO, Any

from dulwich.errors import GitProtocolError, HangupException
from dulwich.protocol import ReceivableProtocol
from dulwich.server import Backend, UploadPackHandler
from starlette.responses import Response, StreamingResponse

from .auth import unauthorised
from .call import Call
from .lfs import CHUNK
from .refusal import Refusal, bad_request
from .repository import Repository

_SERVICE = "git-upload-pack"
_SPOOL = 8 * 1024 * 1024
_NO_CACHE = {"Cache-Control": "no-cache, max-age=0, must-revalidate"}


class _OneRepository(Backend):  # type: ignore[misc]
    """Whatever path a handler asks for, it gets the repository that was checked for the caller."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository

    def open_repository(self, path: str) -> Any:
        return self._repository.git


def advertise(call: Call) -> Response:
    """The refs, as the first step of a clone."""
    service = call.request.query_params.get("service")
    if service != _SERVICE:
        raise Refusal(403, "Only git-upload-pack (clone and fetch) is served here")
    return _serve(call, b"", "advertisement")


def upload_pack(call: Call) -> Response:
    """The objects that a clone or fetch asks for."""
    body = call.body
    if call.request.headers.get("content-encoding") == "gzip":
        body = _gunzip(body, call.hub.limits.json_bytes)
    return _serve(call, body, "result")


def _serve(call: Call, body: bytes, answer: str) -> Response:
    output = tempfile.SpooledTemporaryFile(  # noqa: SIM115 - closed when it has been sent
        max_size=_SPOOL, dir=os.fspath(call.hub.repositories.incoming)
    )
    advertising = answer == "advertisement"
    try:
        with _reading(call) as repository:
            protocol = ReceivableProtocol(io.BytesIO(body).read, output.write)
            handler = UploadPackHandler(
                _OneRepository(repository),
                ["/"],
                protocol,
                stateless_rpc=True,
                advertise_refs=advertising,
            )
            if advertising:
                protocol.write_pkt_line(f"# service={_SERVICE}\n".encode())
                protocol.write_pkt_line(None)
            handler.handle()
    except (GitProtocolError, HangupException, AssertionError, ValueError) as error:
        output.close()
        raise bad_request(f"git: {error}") from error
    except BaseException:
        output.close()
        raise
    output.seek(0)
    kind = f"application/x-{_SERVICE}-{answer}"
    return StreamingResponse(_drain(output), headers=_NO_CACHE, media_type=kind)


def _reading(call: Call) -> Any:
    """As `call.reading`; git asks for a password only after a 401, so a stranger gets that."""
    if not call.who.authenticated and call.hub.tokens.required:
        with call.hub.repositories.reading(call.repo_id) as repository:
            if repository.facts.private:
                raise unauthorised()
    return call.reading()


def _gunzip(body: bytes, limit: int) -> bytes:
    try:
        unpacker = zlib.decompressobj(16 + zlib.MAX_WBITS)
        data = unpacker.decompress(body, limit)
    except zlib.error as error:
        raise bad_request(f"not gzip: {error}") from error
    if unpacker.unconsumed_tail:
        raise bad_request("the request is too large")
    return data


def _drain(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        while chunk := file.read(CHUNK):
            yield chunk
