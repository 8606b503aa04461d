"""The list of a commit's files as the store keeps it. Values only, no I/O."""

from __future__ import annotations

import dataclasses
import json

from .formats.digest import UNHASHED, is_hashed
from .formats.names import path_fault
from .sources import RemoteFile

BUILD = "build/"


def place_in_build(path: str) -> tuple[str, str] | None:
    """Variant and path inside it of a file that a load uses; None for any other (byte code)."""
    variant, _, inside = path.removeprefix(BUILD).partition("/")
    is_used = path.startswith(BUILD) and (inside in UNHASHED or is_hashed(inside))
    return (variant, inside) if inside and is_used else None


def render_listing(files: tuple[RemoteFile, ...]) -> bytes:
    """The list of a commit's files as it is kept; `parse_listing` reads it."""
    return json.dumps([dataclasses.asdict(file) for file in files]).encode()


def parse_listing(data: bytes | None) -> tuple[RemoteFile, ...] | None:
    """What `render_listing` wrote, None if it is damaged; names are checked again."""
    if data is None:
        return None
    try:
        files = tuple(RemoteFile(**item) for item in json.loads(data))
    except (ValueError, TypeError, RecursionError):
        return None
    return files if all(map(_is_sound, files)) else None


def _is_sound(file: RemoteFile) -> bool:
    texts = [file.path, file.git_sha1, *([] if file.sha256 is None else [file.sha256])]
    if not all(isinstance(text, str) for text in texts):
        return False
    return type(file.size) is int and file.size >= 0 and path_fault(file.path) is None
