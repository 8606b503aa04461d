"""Signed links for LFS transfers: clients send no token there, so the link itself is the right.

A link names the operation, the repository, the object and its size, and when it ends; a keyed hash
over all of these makes it unforgeable. The key is kept below the root, so links outlive a restart
and work with several server processes.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

import filelock

from .address import RepoId
from .refusal import Refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """What a link allows. `operation`: upload, part, complete, download; `part` counts from 1."""

    operation: str
    repo_id: RepoId
    oid: str
    size: int
    part: int = 0


class LinkSigner:
    """Makes and checks links."""

    def __init__(self, key: bytes, *, seconds: int) -> None:
        self._key = key
        self._seconds = seconds

    @classmethod
    def at(cls, path: Path, *, seconds: int) -> LinkSigner:
        """With the key in that file, which is made where it is missing."""
        with filelock.FileLock(path.with_name(f"{path.name}.lock")):
            if not path.exists():
                draft = path.with_name(f"{path.name}.new")
                descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
                with os.fdopen(descriptor, "wb") as file:
                    file.write(secrets.token_bytes(32))
                draft.replace(path)
        return cls(path.read_bytes(), seconds=seconds)

    def url(self, base: str, link: Link) -> str:
        """The absolute URL of a link."""
        ends = int(time.time()) + self._seconds
        query = {
            "size": link.size,
            "part": link.part,
            "ends": ends,
            "signature": self._signature(link, ends),
        }
        repo_id = link.repo_id
        path = f"lfs/{link.operation}/{repo_id.plural}/{repo_id}/{link.oid}"
        return f"{base}/api/{path}?{urlencode(query)}"

    def check(self, operation: str, repo_id: RepoId, oid: str, query: Mapping[str, str]) -> Link:
        """The link that a request used.

        Raises:
            Refusal: 403, it was forged or has ended.
        """
        try:
            size, part, ends = (int(query[name]) for name in ("size", "part", "ends"))
        except (KeyError, ValueError) as error:
            raise Refusal(403, "not a link that this Hub made") from error
        link = Link(operation=operation, repo_id=repo_id, oid=oid, size=size, part=part)
        if not _same(self._signature(link, ends), query.get("signature", "")):
            raise Refusal(403, "not a link that this Hub made")
        if time.time() > ends:
            raise Refusal(403, "this link has ended: ask for a new one")
        return link

    def _signature(self, link: Link, ends: int) -> str:
        facts = (link.operation, link.repo_id.kind, link.repo_id, link.oid, link.size, link.part)
        text = "\n".join(str(fact) for fact in (*facts, ends))
        return hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()


def _same(expected: str, given: str) -> bool:
    return hmac.compare_digest(expected.encode(), given.encode("utf-8", "replace"))
