"""Files: `HEAD` says what a file is, `GET` sends it, a range of it where asked for."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from .call import Call
from .lfs import CHUNK
from .refusal import Refusal, no_entry
from .repository import Entry

_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})", re.ASCII)


def resolve(call: Call) -> Response:
    """Answer one file."""
    with call.reading() as repository:
        commit = repository.commit_of(call.args["revision"])
        entry = repository.file(commit, call.args["path"])
        headers = _headers(entry, commit)
        if call.request.method == "HEAD":
            return Response(headers={**headers, "Content-Length": str(entry.size)})
        span = read_range(call.request.headers.get("range"), entry.size)
        if entry.lfs is not None:
            path = repository.lfs.path(entry.lfs.oid)
            return send_file(path, entry.size, span, headers)
        return _send_bytes(repository.content(entry.oid), span, headers)


def _headers(entry: Entry, commit: str) -> dict[str, str]:
    name = quote(entry.path.rpartition("/")[2])
    headers = {
        "X-Repo-Commit": commit,
        "Accept-Ranges": "bytes",
        "ETag": f'"{entry.oid}"',
        # Files are anybody's: a browser shall save them, never show them as a page of this Hub.
        "Content-Type": "application/octet-stream",
        "Content-Disposition": f"attachment; filename*=UTF-8''{name}",
        "X-Content-Type-Options": "nosniff",
    }
    if entry.lfs is not None:
        headers["ETag"] = headers["X-Linked-ETag"] = f'"{entry.lfs.oid}"'
        headers["X-Linked-Size"] = str(entry.lfs.size)
    return headers


def read_range(header: str | None, size: int) -> tuple[int, int] | None:
    """First byte and the one after the last; None sends everything (as for several ranges).

    Raises:
        Refusal: 416, it begins after the end.
    """
    match = _RANGE.fullmatch(header.strip()) if header else None
    if match is None or match.groups() == ("", ""):
        return None
    first, last = match.groups()
    if first and last and int(last) < int(first):
        return None
    start = int(first) if first else max(0, size - int(last))
    end = min(int(last) + 1, size) if first and last else size
    if start >= size:
        raise Refusal(
            416, f"the file has {size} bytes", headers={"Content-Range": f"bytes */{size}"}
        )
    return start, end


def _part(span: tuple[int, int] | None, size: int) -> tuple[int, int, int, dict[str, str]]:
    """Status, start, end and headers of an answer."""
    if span is None:
        return 200, 0, size, {"Content-Length": str(size)}
    start, end = span
    length = {"Content-Length": str(end - start)}
    return 206, start, end, {**length, "Content-Range": f"bytes {start}-{end - 1}/{size}"}


def _send_bytes(data: bytes, span: tuple[int, int] | None, headers: dict[str, str]) -> Response:
    status, start, end, more = _part(span, len(data))
    return Response(data[start:end], status, {**headers, **more})


def send_file(
    path: Path, size: int, span: tuple[int, int] | None, headers: dict[str, str]
) -> Response:
    """Answer with a file of `size` bytes, a chunk at a time.

    Raises:
        Refusal: 404, it is not there or has another size.
    """
    try:
        file = path.open("rb")
    except FileNotFoundError as error:
        raise no_entry(f"LFS object {path.name}") from error
    if os.fstat(file.fileno()).st_size != size:
        file.close()
        raise Refusal(500, f"LFS object {path.name} is damaged on the Hub's disk")
    status, start, end, more = _part(span, size)
    return _FileResponse(file, start, end, status, {**headers, **more})


class _FileResponse(StreamingResponse):
    """Streams a part of an open file, and closes it also when the client goes away."""

    def __init__(
        self, file: BinaryIO, start: int, end: int, status: int, headers: dict[str, str]
    ) -> None:
        super().__init__(_chunks(file, start, end), status, headers)
        self._file = file

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._file.close()


def _chunks(file: BinaryIO, start: int, end: int) -> Iterator[bytes]:
    file.seek(start)
    while start < end and (chunk := file.read(min(CHUNK, end - start))):
        start += len(chunk)
        yield chunk
