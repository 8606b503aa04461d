"""What every handler gets: the Hub's parts, the request, and who sent it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request

from .address import RepoId
from .auth import Identity, Tokens, check_read, check_write
from .lfs_links import LinkSigner
from .limits import Limits
from .organisations import Organisation
from .refusal import Refusal, bad_request, no_repository
from .repositories import Repositories
from .repository import Repository


@dataclass(frozen=True, slots=True, kw_only=True)
class Hub:
    """Everything that lives as long as the application."""

    repositories: Repositories
    tokens: Tokens
    organisations: Mapping[str, Organisation]
    signer: LinkSigner
    limits: Limits
    read_only: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request on its way to a handler.

    Attributes:
        args: the named parts of the path, each percent-decoded once.
        body: the whole body, except for handlers that stream it.
    """

    hub: Hub
    request: Request
    args: Mapping[str, str]
    who: Identity
    body: bytes = b""

    @property
    def repo_id(self) -> RepoId:
        """The repository that the path names; a name that no repository can have is not found."""
        kind = self.args.get("kind") or "model"
        try:
            return RepoId.of(kind, self.args["namespace"], self.args["name"])
        except Refusal as refusal:
            raise no_repository(f"{self.args['namespace']}/{self.args['name']}") from refusal

    @property
    def base(self) -> str:
        """Scheme and host as the client names them: clients refuse URLs with another host."""
        return f"{self.request.url.scheme}://{self.request.url.netloc}"

    @contextmanager
    def reading(self) -> Iterator[Repository]:
        """The repository of the path, for reading."""
        repo_id = self.repo_id
        with self.hub.repositories.reading(repo_id) as repository:
            check_read(self.who, repo_id, private=repository.facts.private)
            yield repository

    @contextmanager
    def writing(self) -> Iterator[Repository]:
        """The repository of the path, for writing: locked."""
        self.check_writable()
        with self.hub.repositories.writing(self.repo_id) as repository:
            yield repository

    def check_writable(self) -> None:
        """Raise unless the caller may write to the repository of the path, and it exists."""
        with self.reading():
            self.check_namespace(self.repo_id.namespace)

    def check_namespace(self, namespace: str) -> None:
        """Raise unless the caller may write below a namespace."""
        if self.hub.read_only:
            raise Refusal(403, "Forbidden: this Hub is read-only")
        check_write(self.who, namespace)

    def json(self) -> dict[str, Any]:
        """The body as a JSON object.

        Raises:
            Refusal: 400.
        """
        try:
            value = json.loads(self.body or b"{}")
        except (ValueError, RecursionError) as error:
            raise bad_request(f"the body is not JSON: {error}") from error
        if not isinstance(value, dict):
            raise bad_request("the body is not a JSON object")
        return value

    def text(self, table: Mapping[str, Any], key: str, default: str | None = None) -> str:
        """A string of the body.

        Raises:
            Refusal: 400, it is missing or no string.
        """
        value = table.get(key)
        value = default if value is None else value
        if not isinstance(value, str):
            raise bad_request(f"{key}: expected a string")
        return value

    def flag(self, name: str) -> bool:
        """A boolean of the query."""
        return self.request.query_params.get(name, "").lower() in ("1", "true")

    def number(self, name: str, default: int, most: int) -> int:
        """A whole number of the query, cut to 0..most.

        Raises:
            Refusal: 400, it is no number.
        """
        text = self.request.query_params.get(name)
        if text is None:
            return default
        if not text.isascii() or not text.isdigit() or len(text) > 18:
            raise bad_request(f"{name}: expected a whole number, got {text[:40]!r}")
        return min(int(text), most)
