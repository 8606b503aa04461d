"""Where what is known of a commit came from: the Hub itself, or a bundle that only claims to be it.

A commit's id says nothing of the files of a build, so decisions made for a commit count once the
Hub has listed its files. Until then it carries a mark.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Mapping

from .disk import translated, write_whole
from .errors import HubRateLimited, HubUnavailable, IntegrityError, StoreError
from .hashing import FileId
from .listings import BUILD, parse_listing, place_in_build, render_listing
from .resolution import Way
from .sources import RemoteFile
from .store import LISTING, Repository

logger = logging.getLogger(__name__)

_MARK = "origin.json"


def is_unseen(repository: Repository, commit: str) -> bool:
    """Whether the files of a commit are known from a bundle alone."""
    return repository.note(commit, _MARK) is not None


def mark(repository: Repository, commit: str) -> None:
    """Note that what is about to be kept of a commit is what a bundle says.

    Raises:
        StoreError: that cannot be noted, so nothing may be kept.
    """
    path = repository.folder / commit / _MARK
    with translated(path):
        write_whole(path, json.dumps({"schema": 1, "origin": "bundle"}).encode())


def unmark(repository: Repository, commit: str) -> None:
    """What is known of a commit is right: the Hub, or a lock of the user's, says the same."""
    repository.forget_note(commit, _MARK)


def ask_the_hub(repository: Repository, commit: str, way: Way) -> tuple[RemoteFile, ...] | None:
    """The Hub's own list of a marked commit's files, which takes the place of the bundle's.

    None where there is no mark, or the Hub cannot be asked: the mark then stays.
    """
    if way.connect is None or not is_unseen(repository, commit):
        return None
    try:
        files = way.connect(True).listing(repository.repo_id, commit)
    except (HubUnavailable, HubRateLimited) as error:
        logger.info("%s@%s came by a bundle: %s", repository.repo_id, commit[:12], error)
        return None
    with repository.lock(commit, way.remaining() / 2):
        repository.keep_note(commit, LISTING, render_listing(files))
        if repository.note(commit, LISTING) == render_listing(files):
            with contextlib.suppress(StoreError):  # a disk that is not ours: asked again next time
                unmark(repository, commit)
    return files


def is_listed(repository: Repository, commit: str) -> bool:
    """Whether this machine knows the list of a commit's files."""
    return bool(parse_listing(repository.note(commit, LISTING)))


def hold_to_known(
    repository: Repository, commit: str, listing: bytes | None, *, pinned: bool
) -> bool:
    """Refuse a bundle's list of files that contradicts what this machine knows of a commit.

    Args:
        pinned: whether a lock of the user's own pins the bundle.

    Returns:
        Whether what is known came by another bundle, and gives way to that lock.

    Raises:
        IntegrityError: other files are known.
    """
    offered = _used(parse_listing(listing) or ())
    known = _known_files(repository, commit)
    if not is_listed(repository, commit):  # copies without it say nothing of other variants
        variants = set(repository.variants(commit))
        offered = {path: i for path, i in offered.items() if path.split("/")[1] in variants}
    path = min(dict(known.items() ^ offered.items()), default=None) if known else None
    if path is None:
        return False
    unseen = is_unseen(repository, commit)
    if unseen and pinned:
        return True
    mine, its = (
        f"{ids[path].algorithm} {ids[path].value}" if path in ids else "no such file"
        for ids in (known, offered)
    )
    source = "by an earlier bundle" if unseen else "on this machine"
    raise IntegrityError(
        f"the bundle contradicts what is known here of {repository.repo_id}@{commit[:12]}",
        faults={path: f"{source}: {mine}; in the bundle: {its}"},
        hint="ask who made the bundle; if it is what is here that is wrong, remove"
        f" {repository.folder / commit}",
    )


def _known_files(repository: Repository, commit: str) -> Mapping[str, FileId]:
    """Ids of the files of a commit's builds as its list, else its copies here, have them."""
    if files := parse_listing(repository.note(commit, LISTING)):
        return _used(files)
    stored = filter(None, (repository.find(commit, v) for v in repository.variants(commit)))
    return {
        f"{BUILD}{item.receipt.variant}/{path}": file
        for item in stored
        for path, file in item.receipt.files.items()
    }


def _used(files: tuple[RemoteFile, ...]) -> dict[str, FileId]:
    """Ids of the files that a load would use, by path in the repository."""
    return {file.path: file.id for file in files if place_in_build(file.path)}
