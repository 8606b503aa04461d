"""Who is calling, and what they may do.

Without tokens the Hub is open: everybody may read and write everything, private repositories
included. With tokens, public repositories stay readable by everybody; writing, and reading a
private repository, takes a token that reaches the namespace. A tokens file is TOML:

    [[token]]
    name = "ci"                       # who the access log and commits say it was
    sha256 = "9f86d0..."              # hex SHA-256 of the token, or: token = "the secret itself"
    write = true                      # false (the default) reads only
    namespaces = ["demo"]             # left out: all
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelhub.errors import FormatError, InputError, Problem

from .address import RepoId
from .organisations import read_toml
from .refusal import Refusal, no_repository

_KEYS: dict[str, type] = {
    "name": str,
    "sha256": str,
    "token": str,
    "write": bool,
    "namespaces": list,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A caller. `namespaces` None means all; an empty tuple means public repositories only."""

    name: str
    write: bool = False
    namespaces: tuple[str, ...] | None = None
    authenticated: bool = True

    def reaches(self, namespace: str) -> bool:
        return self.namespaces is None or namespace in self.namespaces

    def may_write(self, namespace: str) -> bool:
        return self.write and self.reaches(namespace)


OPEN = Identity(name="anonymous", write=True, authenticated=False)
NOBODY = Identity(name="anonymous", namespaces=(), authenticated=False)


class Tokens:
    """The tokens that the Hub knows, by their SHA-256: the secrets themselves are not kept."""

    def __init__(self, identities: Mapping[str, Identity] | None = None) -> None:
        self._identities = None if identities is None else dict(identities)

    @classmethod
    def of(cls, scopes: Mapping[str, str]) -> Tokens:
        """From secrets to "read" or "write", for tests and embedded use."""
        for secret, scope in scopes.items():
            if scope not in ("read", "write"):
                raise InputError(f"a token's scope is read or write, not {scope!r}")
            if not secret:
                raise InputError("a token may not be empty")
        return cls(
            {
                digest(secret): Identity(
                    name=f"{scope}-{digest(secret)[:8]}", write=scope == "write"
                )
                for secret, scope in scopes.items()
            }
        )

    @classmethod
    def read(cls, path: Path) -> Tokens:
        """Read a tokens file.

        Raises:
            FormatError: with every fault of the file.
        """
        table = read_toml(path)
        rows = table.get("token")
        if set(table) != {"token"} or not isinstance(rows, list) or not rows:
            fault = Problem(
                path=path.name, message="expected one or more [[token]] tables, no more"
            )
            raise FormatError(str(path), [fault])
        problems = [
            Problem(path=path.name, at=f"token[{index}]", message=message)
            for index, row in enumerate(rows)
            for message in _faults(row)
        ]
        if problems:
            raise FormatError(str(path), problems)
        return cls({_digest_of(row): _identity(row) for row in rows})

    @property
    def required(self) -> bool:
        return self._identities is not None

    def identify(self, authorization: str | None) -> Identity:
        """Who sent this `Authorization` header (Bearer, or Basic as git sends it).

        Raises:
            Refusal: 401, the token is not known here.
        """
        if self._identities is None:
            return OPEN
        secret = _secret(authorization)
        if secret is None:
            return NOBODY
        identity = self._identities.get(digest(secret))
        if identity is None:
            raise unauthorised()
        return identity


def unauthorised() -> Refusal:
    """The message keeps clients from reading a 401 as "no such repository"."""
    return Refusal(
        401,
        "Invalid credentials in Authorization header",
        headers={"WWW-Authenticate": 'Basic realm="kernelhub"'},
    )


def check_read(who: Identity, repo_id: RepoId, *, private: bool) -> None:
    """Raise unless `who` may see the repository."""
    if private and not who.reaches(repo_id.namespace):
        raise no_repository(repo_id)


def check_write(who: Identity, namespace: str) -> None:
    """Raise unless `who` may write below the namespace."""
    if who.may_write(namespace):
        return
    if not who.authenticated:
        raise unauthorised()
    raise Refusal(403, f"Forbidden: the token {who.name!r} may not write to {namespace}")


def digest(secret: str) -> str:
    """Hex SHA-256 of a token."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def _secret(authorization: str | None) -> str | None:
    scheme, _, value = (authorization or "").partition(" ")
    if scheme.lower() == "bearer":
        return value.strip() or None
    if scheme.lower() != "basic":
        return None
    try:
        _, _, password = base64.b64decode(value, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError) as error:
        raise unauthorised() from error
    return password or None


def _faults(row: object) -> list[str]:
    if not isinstance(row, dict):
        return ["expected a table"]
    faults = [f"unknown key {key}" for key in row if key not in _KEYS]
    faults += [
        f"{key}: expected a {_KEYS[key].__name__}"
        for key, value in row.items()
        if key in _KEYS and not isinstance(value, _KEYS[key])
    ]
    if not row.get("name"):
        faults.append("name is missing")
    if ("sha256" in row) == ("token" in row):
        faults.append("give either sha256 or token")
    if "sha256" in row and not re.fullmatch(r"[0-9a-f]{64}", str(row["sha256"])):
        faults.append("sha256: expected 64 lower-case hex digits")
    if "token" in row and not row["token"]:
        faults.append("token: may not be empty")
    return faults


def _digest_of(row: Mapping[str, Any]) -> str:
    return str(row["sha256"]) if "sha256" in row else digest(row["token"])


def _identity(row: Mapping[str, Any]) -> Identity:
    namespaces = row.get("namespaces")
    return Identity(
        name=row["name"],
        write=row.get("write", False),
        namespaces=None if namespaces is None else tuple(str(n) for n in namespaces),
    )
