"""What a publication would change on one branch: pure, from a listing and the files at hand."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from kernelhub.sources import RemoteFile

MAIN = "main"
BUILD = "build/"
GIT_ATTRIBUTES = ".gitattributes"  # says which files are LFS: it belongs to the Hub


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalFile:
    """A file to publish, with both ids by which a Hub may know it.

    Attributes:
        path: in the repository, with `/`.
        size: in bytes.
        git_sha1: git blob id of the content.
        sha256: hash of the content, hexadecimal.
    """

    path: str
    size: int
    git_sha1: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchPlan:
    """Paths by what happens to them; `parent` is the commit that the plan was made against.

    Attributes:
        upload_bytes: total size of added and updated files.
    """

    branch: str
    parent: str | None
    added: tuple[str, ...]
    updated: tuple[str, ...]
    deleted: tuple[str, ...]
    unchanged: tuple[str, ...]
    upload_bytes: int

    @property
    def is_empty(self) -> bool:
        """Whether the branch already is as it should be."""
        return not (self.added or self.updated or self.deleted)


def plan_branch(
    branch: str,
    parent: str | None,
    local: Iterable[LocalFile],
    remote: Collection[RemoteFile],
    *,
    on_main: bool = False,
) -> BranchPlan:
    """Compare what should be on a branch with what is there.

    On main only the local files are touched. On a branch that holds a build, everything below
    `build/` that is not local is stale; on one that holds none yet, everything is.

    Args:
        parent: the branch's commit now, None if there is no such branch yet.
        remote: the files there now, or where the branch would start.
        on_main: a build on its way through main (a pull request for a branch that does not exist
            yet): only what is below `build/` is stale.
    """
    wanted: Mapping[str, LocalFile] = {file.path: file for file in local}
    present: Mapping[str, RemoteFile] = {file.path: file for file in remote}
    same = {path for path, file in wanted.items() if _same(file, present.get(path))}
    prefixes = (BUILD,) if on_main else _owned(branch, remote)
    others = present.keys() - wanted.keys() - {GIT_ATTRIBUTES}
    stale = [path for path in others if path.startswith(prefixes)]
    changed = wanted.keys() - same
    return BranchPlan(
        branch=branch,
        parent=parent,
        added=tuple(sorted(changed - present.keys())),
        updated=tuple(sorted(changed & present.keys())),
        deleted=tuple(sorted(stale)),
        unchanged=tuple(sorted(same)),
        upload_bytes=sum(wanted[path].size for path in changed),
    )


def _same(local: LocalFile, remote: RemoteFile | None) -> bool:
    if remote is None:
        return False
    if remote.sha256 is not None:
        return remote.sha256 == local.sha256
    return remote.git_sha1 == local.git_sha1


def _owned(branch: str, remote: Collection[RemoteFile]) -> tuple[str, ...]:
    if branch == MAIN:
        return ()
    has_build = any(file.path.startswith(BUILD) for file in remote)
    return (BUILD,) if has_build else ("",)
