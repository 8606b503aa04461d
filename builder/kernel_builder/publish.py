"""Publish a build: one commit per branch, and none where nothing would change.

`v<N>` gets `build/<variant>/…`, then `main` gets the card, so that the card never names a version
that is not there, and only if no newer version is published. What a branch holds below `build/` and
the build does not is removed in the same commit. A version's branch appears with its build and
holds nothing else but `.gitattributes`: `publish_branch` says how.

Every commit names the one that its plan was made against, so two publishers cannot mix their
files: the second is told. After a lost answer the branch is looked at before anything is sent
again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kernelhub.errors import InputError, RepositoryNotFound
from kernelhub.reporter import SILENT, Reporter

from .api import Break
from .compat import breaks_of_published
from .hub import Hub, Refs
from .pack import check_build
from .project import Project
from .publish_branch import BranchPublisher, BranchResult
from .publish_content import Content, build_content, card_content
from .publish_plan import MAIN, BranchPlan, plan_branch

_VERSION_BRANCH = re.compile(r"v[0-9]+", re.ASCII)
_BRANCH = re.compile(r"(?!.*(\.\.|//|/\.|\.lock(/|$)))[\w][\w./+-]*(?<![./])", re.ASCII)
_REPO_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


class BreakingChange(InputError):
    """The new build would break users of a published version. `breaks` names each break."""

    def __init__(self, branch: str, breaks: Iterable[Break]) -> None:
        self.breaks = tuple(breaks)
        lines = "\n".join(f"  - {item}" for item in self.breaks)
        super().__init__(
            f"this would break users of {branch}:\n{lines}",
            hint="raise general.version in build.toml, or publish with --allow-breaking",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to publish.

    Attributes:
        repo_id: None takes `general.hub.repo-id` of build.toml.
        branch: None takes `general.hub.branch`, else `v<version>`.
        private: make a repository that does not exist yet a private one.
        create_pr: open a pull request per branch instead of committing to it.
        allow_breaking: publish although the public interface breaks.
        dry_run: plan only; nothing is written anywhere.
        output: the build's folder; None is `<project>/build`.
    """

    repo_id: str | None = None
    branch: str | None = None
    private: bool = False
    create_pr: bool = False
    allow_breaking: bool = False
    dry_run: bool = False
    output: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """What `publish` did, or with `dry_run` would do.

    Attributes:
        created: whether the repository did not exist before.
        breaks: breaks of the public interface that were let through.
        newest: branch of the newer version that the card on main is left to, if there is one.
    """

    repo_id: str
    created: bool
    branches: tuple[BranchResult, ...]
    breaks: tuple[Break, ...]
    newest: str | None


def publish(
    project: Project, hub: Hub, options: Options, *, reporter: Reporter = SILENT
) -> Publication:
    """Publish the project's build.

    Raises:
        InputError: no build, a build of other sources, or no repository named.
        IntegrityError: the build was changed after it was made.
        BreakingChange: the branch's users would break.
        HubError, RepositoryNotFound: the Hub refused or failed, or the time of `hub` is over.
    """
    repo_id = _repo_id(project, options)
    branch = options.branch or project.build_file.branch or f"v{project.build_file.version}"
    if branch == MAIN:
        raise InputError(
            "main holds the card, not a build", hint=f"use --branch v{project.build_file.version}"
        )
    if _BRANCH.fullmatch(branch) is None or branch.startswith("refs/"):
        raise InputError(
            f"{branch!r} is no name of a branch",
            hint=f"letters, digits and -_./+ without spaces, such as v{project.build_file.version}",
        )
    built = check_build(project, options.output)
    reporter.stage(f"compare with {repo_id}")
    refs, created = _look(hub, repo_id, options)
    newest = _newer(refs, project.build_file.version)
    wanted = [build_content(branch, built)]
    if newest is None:
        wanted.append(card_content(project, repo_id))
    plans = [_plan(hub, repo_id, refs, content) for content in wanted]
    breaks: tuple[Break, ...] = ()
    if not plans[0].is_empty and _VERSION_BRANCH.fullmatch(branch) and branch in refs.branches:
        breaks = breaks_of_published(hub, repo_id, refs.branches[branch], project)
    if breaks and not options.allow_breaking and branch != "v0":  # 0 is alpha: it promises nothing
        raise BreakingChange(branch, breaks)
    reporter.done()
    if options.dry_run:
        results = [BranchResult(plan=plan, committed=None) for plan in plans]
    else:
        if created:
            hub.create_repository(repo_id, private=options.private)
        publisher = BranchPublisher(hub=hub, repo_id=repo_id, create_pr=options.create_pr)
        results = [
            publisher.publish(content, plan, refs, reporter)
            for content, plan in zip(wanted, plans, strict=True)
        ]
    return Publication(
        repo_id=repo_id, created=created, branches=tuple(results), breaks=breaks, newest=newest
    )


def _repo_id(project: Project, options: Options) -> str:
    repo_id = options.repo_id or project.build_file.hub_repo_id
    if not repo_id:
        raise InputError(
            "no repository named", hint="give --repo-id, or set repo-id under [general.hub]"
        )
    if _REPO_ID.fullmatch(repo_id) is None:
        raise InputError(f"{repo_id!r} is no repository", hint='write "organisation/name"')
    return repo_id


def _newer(refs: Refs, version: int) -> str | None:
    """Branch of the newest published version if it is newer than this one: main's card is its."""
    published = [int(name[1:]) for name in refs.branches if _VERSION_BRANCH.fullmatch(name)]
    newest = max(published, default=version)
    return f"v{newest}" if newest > version else None


def _look(hub: Hub, repo_id: str, options: Options) -> tuple[Refs, bool]:
    try:
        return hub.refs(repo_id), False
    except RepositoryNotFound:
        if options.create_pr:
            raise
        return Refs(branches={}, pull_requests={}), True


def _plan(hub: Hub, repo_id: str, refs: Refs, content: Content) -> BranchPlan:
    """Plan against the branch, or against main where the branch would start."""
    head = refs.branches.get(content.branch)
    start = head or refs.branches.get(MAIN)
    remote = hub.tree(repo_id, start) if start else ()
    return plan_branch(content.branch, head, content.files, remote)
