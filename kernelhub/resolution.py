"""Which commit of a repository is asked for: a pin, a lock between processes, the Hub, or memory.

A full commit id needs nobody. Everything else is asked of the Hub: once for all processes of a node
that start together, since an answer that came after a process started is as new as its own would
be. What the Hub said is remembered and stands in where it cannot be asked.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from .errors import (
    HubRateLimited,
    HubUnavailable,
    InputError,
    NotCached,
    VersionNotFound,
)
from .formats.requirement import Requirement, parse_requirement, pinned
from .freshness import fresh_since, is_fresh
from .remembered import Remembered
from .sources import Source
from .store import Repository

logger = logging.getLogger(__name__)

_VERSION_BRANCH = re.compile(r"v(\d{1,18})", re.ASCII)
_told: set[str] = set()


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """A commit, and the version that it was resolved from, if any."""

    commit: str
    version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How a Hub may be asked for one load.

    Attributes:
        connect: gives a source; with True one that does not retry. None where offline.
        remaining: seconds that may still be spent.
    """

    connect: Callable[[bool], Source] | None
    remaining: Callable[[], float]


def requirement_of(repo_id: str, version: int | str | None, revision: str | None) -> Requirement:
    """The requirement that the arguments of `get_kernel` state.

    Args:
        repo_id: "org/name", which may carry a pin ("org/name==1", "org/name@<commit>").
        version: a version, or a specifier such as ">=1,<3".
        revision: a branch, tag or commit.

    Raises:
        RequirementError: something of it does not parse.
        InputError: more than one pin is given, or one is of another type.
    """
    if not isinstance(repo_id, str) or not isinstance(revision, (str, type(None))):
        raise InputError(
            f"repo_id={repo_id!r}, revision={revision!r}: these are texts",
            hint='write get_kernel("org/name", version=1)',
        )
    requirement = parse_requirement(repo_id)
    carried = requirement.specifier is not None or requirement.revision is not None
    if carried + (version is not None) + (revision is not None) > 1:
        raise InputError(
            f"{repo_id!r}, version={version!r}, revision={revision!r}: more than one pin",
            hint="pin the kernel in one place only",
        )
    if isinstance(version, bool) or not isinstance(version, (int, str, type(None))):
        raise InputError(
            f"{repo_id}: version={version!r} is neither an integer nor a specifier",
            hint='write version=1 or version=">=1,<3"',
        )
    if isinstance(version, int) or (isinstance(version, str) and version.strip().isdigit()):
        return pinned(repo_id, f"=={version}")
    if version is not None:
        return pinned(repo_id, version)
    return requirement if revision is None else parse_requirement(f"{repo_id}@{revision}")


def resolve(
    requirement: Requirement,
    repository: Repository,
    way: Way,
    holds_builds: Callable[[str], bool],
    *,
    tell: bool = True,
    memory: bool = True,
) -> Resolved:
    """The commit that a requirement means now.

    Args:
        requirement: what is asked for.
        repository: its copies, and what is remembered of it.
        way: how the Hub may be asked.
        holds_builds: whether anything is published at a commit; asked only where more than one
            version would do, from the newest down.
        tell: whether to log which version was taken where none was asked for.
        memory: whether what the Hub said last may stand in where it cannot be asked.

    Raises:
        VersionNotFound: there is no such version or revision; lists the versions that there are.
        NotCached: offline, and nothing that would do is on this disk.
        RepositoryNotFound, HubAuthError, HubRateLimited, HubUnavailable: as the Hub answers.
    """
    if requirement.revision is not None and requirement.is_pinned:
        return Resolved(commit=requirement.revision)
    fallback = _from_memory(requirement, repository) if memory else None
    if way.connect is None:
        if fallback is None:
            raise _not_cached(requirement, repository)
        if tell:
            _tell(requirement, fallback, "newest on this disk")
        return fallback
    try:
        found = _ask(requirement, repository, way, holds_builds, quick=fallback is not None)
    except (HubUnavailable, HubRateLimited) as error:
        if fallback is None:
            raise
        logger.warning(
            "%s: the Hub cannot be asked (%s); using what it said last: %s",
            requirement,
            error.message,
            fallback.commit,
        )
        return fallback
    if tell:
        _tell(requirement, found, "newest")
    return found


def _ask(
    requirement: Requirement,
    repository: Repository,
    way: Way,
    holds_builds: Callable[[str], bool],
    *,
    quick: bool,
) -> Resolved:
    if requirement.revision is None:
        return pick(requirement, _ask_versions(repository, way, quick=quick), holds_builds)
    return Resolved(
        commit=_ask_revision(requirement.repo_id, requirement.revision, repository, way, quick)
    )


def _ask_revision(
    repo_id: str, revision: str, repository: Repository, way: Way, quick: bool
) -> str:
    since = fresh_since(repository.folder, revision)

    def said() -> str | None:
        commit, asked = repository.remembered().revisions.get(revision, ("", 0.0))
        return commit if is_fresh(asked, since) else None

    with repository.lock("resolve", way.remaining() / 2, until=said):
        if (known := said()) is not None:
            return known
        assert way.connect is not None  # noqa: S101 - resolve has seen to it
        commit = way.connect(quick).resolve(repo_id, revision)
        now = time.time()
        repository.remember(lambda m: m.with_revision(revision, commit, now))
        return commit


def _ask_versions(repository: Repository, way: Way, *, quick: bool) -> Mapping[int, str]:
    since = fresh_since(repository.folder, "versions")

    def said() -> Remembered | None:
        memory = repository.remembered()
        return memory if is_fresh(memory.asked, since) else None

    with repository.lock("resolve", way.remaining() / 2, until=said):
        if (memory := said()) is not None:
            return memory.versions
        assert way.connect is not None  # noqa: S101 - resolve has seen to it
        versions = way.connect(quick).versions(repository.repo_id)
        now = time.time()
        repository.remember(lambda memory: memory.with_versions(versions, now))
        return versions


def pick(
    requirement: Requirement, versions: Mapping[int, str], holds_builds: Callable[[str], bool]
) -> Resolved:
    """The newest version that a requirement admits; 0, which is unstable, only if nothing else.

    A branch may be there before its build is: a publication that waits for its review, or was cut
    short. Where another version would do, one without a build is passed over, with a warning.

    Raises:
        VersionNotFound: none is admitted; lists what there is.
    """
    admitted = sorted(filter(requirement.admits, versions), reverse=True)
    if not admitted:
        raise _no_version(requirement, sorted(versions))
    newest = admitted[0]
    if len(admitted) > 1:
        newest = next((v for v in admitted if holds_builds(versions[v])), newest)
    if newest != admitted[0]:
        _tell_passed_over(requirement, admitted[0], versions[admitted[0]], newest)
    return Resolved(commit=versions[newest], version=newest)


def _from_memory(requirement: Requirement, repository: Repository) -> Resolved | None:
    """The newest thing that was said of this requirement and is on this disk."""
    memory = repository.remembered()
    if requirement.revision is not None:
        commit, _ = memory.revisions.get(requirement.revision, ("", 0.0))
        branch = _VERSION_BRANCH.fullmatch(requirement.revision)
        stood_at = memory.history.get(int(branch[1]), ()) if branch else ()
        there = (c for c in (commit, *stood_at) if repository.variants(c))
        return next((Resolved(commit=c) for c in there), None)
    for version in sorted(filter(requirement.admits, memory.history), reverse=True):
        for commit in memory.history[version]:
            if repository.variants(commit):
                return Resolved(commit=commit, version=version)
    return None


def _not_cached(requirement: Requirement, repository: Repository) -> NotCached:
    commits = ", ".join(sorted(repository.commits())) or "none"
    return NotCached(
        f"offline, and no complete copy of {requirement} is in {repository.folder}"
        f" (commits that are there: {commits})",
        hint="load it once online with the same HF_ENDPOINT and KERNELHUB_CACHE",
    )


def _tell(requirement: Requirement, found: Resolved, which: str) -> None:
    """Say once which version an unpinned load takes; `which` says among what it is the newest."""
    if requirement.specifier is not None or found.version is None or requirement.repo_id in _told:
        return
    _told.add(requirement.repo_id)
    logger.warning(
        '%s: no version asked for, taking the %s, %d (%s); pin it with "%s==%d" or "%s@%s"',
        requirement.repo_id,
        which,
        found.version,
        found.commit[:12],
        requirement.repo_id,
        found.version,
        requirement.repo_id,
        found.commit,
    )


def _no_version(requirement: Requirement, available: Sequence[int]) -> VersionNotFound:
    repo_id, wanted = requirement.repo_id, str(requirement.specifier or "")
    if not available:
        return VersionNotFound(
            f"{repo_id} has no published version",
            hint=f"ask its author for one; {repo_id}@<branch or commit> takes what has no version",
        )
    exact = wanted.startswith("==") and "," not in wanted
    named = f"version {wanted.removeprefix('==')}" if exact else f"version {wanted}"
    return VersionNotFound(
        f"{repo_id} has no {named}; published versions: {', '.join(map(str, available))}",
        available=available,
        hint=f'ask for one of these, such as "{repo_id}=={available[-1]}"',
    )


def _tell_passed_over(requirement: Requirement, empty: int, commit: str, taken: int) -> None:
    """Say once that the newest version that would do has no build."""
    if commit in _told:
        return
    _told.add(commit)
    logger.warning(
        "%s: version %d holds no build (its publication is not finished), taking %d",
        requirement,
        empty,
        taken,
    )
