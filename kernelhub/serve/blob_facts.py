"""What is known of blobs, kept so that listings need not unpack them."""

from __future__ import annotations

from typing import Any

from .lfs import Pointer, parse_pointer


class BlobFacts:
    """Size and LFS pointer by blob id, for this process: equal ids are equal blobs everywhere.

    Git knows the size of a blob only by unpacking it, and every listing asks for all of them.
    """

    def __init__(self, limit: int = 200_000) -> None:
        self._known: dict[bytes, tuple[int, Pointer | None]] = {}
        self._limit = limit

    def of(self, objects: Any, sha: bytes) -> tuple[int, Pointer | None]:
        facts = self._known.get(sha)
        if facts is None:
            data = objects[sha].data
            facts = (len(data), parse_pointer(data))
            if len(self._known) >= self._limit:
                self._known.clear()
            self._known[sha] = facts
        return facts
