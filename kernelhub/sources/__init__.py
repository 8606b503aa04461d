"""Where kernels come from. A new place to fetch from is one module that implements `Source`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kernelhub.hashing import FileId


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteFile:
    """One file at a commit. `path` is relative to the repository root, with `/`.

    `git_sha1` is the git blob id of what git holds; for an LFS file `sha256` is that of its content
    and `size` its real size in bytes.
    """

    path: str
    size: int
    git_sha1: str
    sha256: str | None = None

    @property
    def id(self) -> FileId:
        """What its content must be."""
        if self.sha256 is not None:
            return FileId("sha256", self.sha256)
        return FileId("git-sha1", self.git_sha1)


class Source(Protocol):
    """A place that holds repositories of kernels.

    Every method raises RepositoryNotFound, VersionNotFound, HubAuthError, HubRateLimited or
    HubUnavailable, and no error of the library underneath.

    Attributes:
        endpoint: names the place, such as its URL; copies from different places are kept apart.
    """

    @property
    def endpoint(self) -> str: ...

    def versions(self, repo_id: str) -> Mapping[int, str]:
        """All versions N (branches `v<N>`) and the commit each stands at now."""

    def resolve(self, repo_id: str, revision: str) -> str:
        """The full commit id of a branch, tag or (abbreviated) commit."""

    def listing(self, repo_id: str, commit: str, folder: str = "build") -> tuple[RemoteFile, ...]:
        """Every file below `folder` at that commit, in one pass."""

    def fetch(self, repo_id: str, commit: str, files: Iterable[RemoteFile], into: Path) -> None:
        """Write each file below `into` under its repository path, checked against its ids.

        Streams: memory does not grow with file size. What is already there whole is kept; a file
        that was cut short is continued.
        """

    def is_trusted_publisher(self, publisher: str) -> bool:
        """Whether the Hub marks this organisation as a trusted publisher; any doubt is False.

        Raises HubRateLimited or HubUnavailable where it cannot be asked.
        """
