"""The body of a commit call: one JSON object a line, read from disk a line at a time."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

from .address import check_path
from .lfs import Pointer, check_oid
from .limits import Limits
from .refusal import bad_request, too_large


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """Message and expected parent: the head's id or the first characters of it; None: any."""

    message: str
    parent: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AddFile:
    """Put an ordinary file."""

    path: str
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class AddLfs:
    """Put an LFS file; `size` None takes the size of the stored object."""

    path: str
    oid: str
    size: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Remove:
    """Take out a file, or a folder with all below it."""

    path: str
    is_folder: bool


Operation = AddFile | AddLfs | Remove


def read_header(body: IO[bytes], limits: Limits) -> Header:
    """Read the first line.

    Raises:
        Refusal: 400, it is no header.
    """
    row = next(_rows(body, limits), None)
    if row is None or row[0] != "header":
        raise bad_request("the first line of a commit must be its header")
    value = row[1]
    summary, description = _text(value, "summary", ""), _text(value, "description", "")
    parent = value.get("parentCommit")
    if parent is not None and not (isinstance(parent, str) and 5 <= len(parent) <= 40):
        raise bad_request("parentCommit: expected 5 to 40 hex digits")
    message = f"{summary}\n\n{description}" if description else summary
    return Header(message=message, parent=parent)


def read_operations(body: IO[bytes], limits: Limits) -> Iterator[Operation]:
    """Read the lines after the header.

    Raises:
        Refusal: 400 or 413, at the first line that cannot be used.
    """
    for count, (key, value) in enumerate(_rows(body, limits), start=1):
        if count > limits.operations:
            raise too_large("the number of files in one commit", limits.operations)
        yield _operation(key, value, limits)


def _operation(key: str, value: dict[str, Any], limits: Limits) -> Operation:
    path = _text(value, "path")
    if key == "deletedFolder":
        return Remove(path=check_path(path.rstrip("/")), is_folder=True)
    check_path(path)
    if key == "deletedFile":
        return Remove(path=path, is_folder=False)
    if key == "file":
        return AddFile(path=path, content=_content(value, limits))
    if key == "lfsFile":
        size = value.get("size")
        if value.get("algo", "sha256") != "sha256" or not (size is None or _is_size(size)):
            raise bad_request(f"{path}: expected algo sha256 and a size in bytes")
        return AddLfs(path=path, oid=check_oid(value.get("oid")), size=size)
    raise bad_request(f"unknown operation: {key!r}")


def _content(value: dict[str, Any], limits: Limits) -> bytes:
    text, path = _text(value, "content"), value["path"]
    encoding = value.get("encoding", "utf-8")
    if encoding == "base64":
        try:
            content = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError) as error:
            raise bad_request(f"{path}: not base64: {error}") from error
    elif encoding == "utf-8":
        content = text.encode("utf-8", "replace")
    else:
        raise bad_request(f"{path}: unknown encoding {encoding!r}")
    if len(content) > limits.regular_bytes:
        raise too_large(f"{path}, sent without LFS,", limits.regular_bytes)
    return content


def _rows(body: IO[bytes], limits: Limits) -> Iterator[tuple[str, dict[str, Any]]]:
    longest = limits.regular_bytes * 4 // 3 + 64 * 1024
    while line := body.readline(longest + 1):
        if len(line) > longest:
            raise too_large("a file sent without LFS", limits.regular_bytes)
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise bad_request(f"a line of the commit is not JSON: {error}") from error
        key, value = (row.get("key"), row.get("value")) if isinstance(row, dict) else (None, None)
        if not isinstance(key, str) or not isinstance(value, dict):
            raise bad_request("a line of the commit is not an object with key and value")
        yield key, value


def _text(value: dict[str, Any], key: str, default: str | None = None) -> str:
    text = value.get(key, default)
    if not isinstance(text, str):
        raise bad_request(f"{key}: expected a string")
    return text


def _is_size(size: object) -> bool:
    return isinstance(size, int) and not isinstance(size, bool) and 0 <= size < 1 << 63


def pointer_of(operation: AddLfs, stored: int | None) -> Pointer:
    """The pointer to store for an LFS file whose object has `stored` bytes (None: is missing).

    Raises:
        Refusal: 400, the object was not uploaded or has another size.
    """
    if stored is None:
        raise bad_request(f"{operation.path}: LFS object {operation.oid} was not uploaded")
    if operation.size not in (None, stored):
        raise bad_request(f"{operation.path}: LFS object {operation.oid} has {stored} bytes")
    return Pointer(oid=operation.oid, size=stored)
