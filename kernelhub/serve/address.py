"""Names that clients send: repositories, paths in them, and revisions; each checked before use."""

from __future__ import annotations

import re
from dataclasses import dataclass

from dulwich.refs import check_ref_format

from .refusal import Refusal, bad_request

# Plural as it stands in URLs -> singular as it stands in JSON bodies.
KINDS = {"kernels": "kernel", "models": "model", "datasets": "dataset", "spaces": "space"}
PLURALS = {kind: plural for plural, kind in KINDS.items()}

_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9_-])?", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x1f\x7f\\]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class RepoId:
    """`kind` is singular ("kernel"). Only `parse` and `of` make one: both check the names."""

    kind: str
    namespace: str
    name: str

    @classmethod
    def of(cls, kind: str, namespace: str, name: str) -> RepoId:
        """Check and join the parts; `kind` may be singular or plural.

        Raises:
            Refusal: 400, the kind or a name is not one that a Hub can have.
        """
        kind = KINDS.get(kind, kind)
        if kind not in PLURALS:
            raise bad_request(f"unknown repository type: {kind}")
        for part in (namespace, name):
            if not is_name(part):
                raise bad_request(f"not a usable repository or organisation name: {part!r}")
        return cls(kind=kind, namespace=namespace, name=name)

    @classmethod
    def parse(cls, kind: str, text: str) -> RepoId:
        """Read `namespace/name`."""
        namespace, slash, name = text.partition("/")
        if not slash:
            raise bad_request(f"expected <namespace>/<name>, got {text!r}")
        return cls.of(kind, namespace, name)

    @property
    def plural(self) -> str:
        return PLURALS[self.kind]

    @property
    def page(self) -> str:
        """The path of its page, without the leading slash: models have no type prefix."""
        return str(self) if self.kind == "model" else f"{self.plural}/{self}"

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def is_name(text: str) -> bool:
    """Whether a namespace or repository may be called that (one safe folder name)."""
    return (
        _NAME.fullmatch(text) is not None
        and ".." not in text
        and "--" not in text  # clients use it as a separator in their caches
        and not text.endswith((".git", ".lock"))
    )


def check_path(path: str) -> str:
    """Check a path inside a repository and return it.

    Raises:
        Refusal: 400, it is empty, absolute, leaves the repository, names git's own folder, or could
            not be written on every client's disk.
    """
    parts = path.split("/")
    if any(part in ("", ".", "..") for part in parts):
        raise bad_request(f"not a path inside the repository: {path!r}")
    if any(_is_git_folder(part) for part in parts):
        raise bad_request(f"a path may not go through .git: {path!r}")
    if _CONTROL.search(path) or _SURROGATE.search(path):
        raise bad_request(f"a path may hold no control character and no backslash: {path!r}")
    if len(path.encode()) > 4096 or any(len(part.encode()) > 255 for part in parts):
        raise bad_request(f"the path is too long: {path[:80]!r}...")
    return path


def _is_git_folder(part: str) -> bool:
    # Windows drops trailing dots and blanks, cuts at a colon, and knows .git by its short name too.
    bare = part.split(":", 1)[0].rstrip(". ").lower()
    return bare in (".git", "git~1")


def check_ref_name(name: str) -> str:
    """Check a branch or tag name as git does (`git check-ref-format`), and return it.

    Raises:
        Refusal: 400.
    """
    usable = (
        not _SURROGATE.search(name)
        and not name.startswith(("refs/", "-"))
        and name != "HEAD"
        and len(name.encode()) <= 200
        and check_ref_format(f"refs/heads/{name}".encode())
    )
    if not usable:
        raise Refusal(400, f"not a usable branch or tag name: {name!r}")
    return name
