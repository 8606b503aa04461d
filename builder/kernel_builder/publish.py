"""Publish a build: one commit per branch, and none where nothing would change.

`v<N>` gets `build/<variant>/…`, then `main` gets the card, so that the card never names a version
that is not there. What a branch holds below `build/` and the build does not is removed in the same
commit. A branch `v<N>` that does not exist yet, or holds no build, starts at the head of main and
its first commit removes everything but `.gitattributes`: a version holds its build, nothing stray.

Every commit names the one that its plan was made against, so two publishers cannot mix their
files: the second is told. After a lost answer the branch is looked at before anything is sent
again.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from kernelhub.errors import HubUnavailable, InputError, RepositoryNotFound
from kernelhub.reporter import SILENT, Reporter

from .api import Break
from .compat import breaks_of_published
from .hub import Committed, Hub, Refs
from .pack import check_build
from .project import Project
from .publish_content import Content, build_content, card_content
from .publish_plan import MAIN, BranchPlan, plan_branch
from .publish_send import BranchCommit

_VERSION_BRANCH = re.compile(r"v[0-9]+")
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
        wait: waits that many seconds between sends.
    """

    repo_id: str | None = None
    branch: str | None = None
    private: bool = False
    create_pr: bool = False
    allow_breaking: bool = False
    dry_run: bool = False
    output: Path | None = None
    wait: Callable[[float], None] = time.sleep


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchResult:
    """One branch: what was planned, and the commit that did it (None: no change, or dry run)."""

    plan: BranchPlan
    committed: Committed | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """What `publish` did, or with `dry_run` would do.

    Attributes:
        created: whether the repository did not exist before.
        breaks: breaks of the public interface that were let through.
    """

    repo_id: str
    created: bool
    branches: tuple[BranchResult, ...]
    breaks: tuple[Break, ...]


def publish(
    project: Project, hub: Hub, options: Options, *, reporter: Reporter = SILENT
) -> Publication:
    """Publish the project's build.

    Raises:
        InputError: no build, a build of other sources, or no repository named.
        IntegrityError: the build was changed after it was made.
        BreakingChange: the branch's users would break.
        HubError, RepositoryNotFound: the Hub refused or failed.
    """
    repo_id = _repo_id(project, options)
    branch = options.branch or project.build_file.branch or f"v{project.build_file.version}"
    if branch == MAIN:
        raise InputError(
            "main holds the card, not a build", hint=f"use --branch v{project.build_file.version}"
        )
    built = check_build(project, options.output)
    reporter.stage(f"compare with {repo_id}")
    wanted = [build_content(branch, built), card_content(project, repo_id)]
    refs, created = _look(hub, repo_id, options)
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
        results = [
            _publish_branch(hub, repo_id, content, plan, refs, options, reporter)
            for content, plan in zip(wanted, plans, strict=True)
        ]
    return Publication(repo_id=repo_id, created=created, branches=tuple(results), breaks=breaks)


def _repo_id(project: Project, options: Options) -> str:
    repo_id = options.repo_id or project.build_file.hub_repo_id
    if not repo_id:
        raise InputError(
            "no repository named", hint="give --repo-id, or set repo-id under [general.hub]"
        )
    if _REPO_ID.fullmatch(repo_id) is None:
        raise InputError(f"{repo_id!r} is no repository", hint='write "organisation/name"')
    return repo_id


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


def _publish_branch(
    hub: Hub,
    repo_id: str,
    content: Content,
    plan: BranchPlan,
    refs: Refs,
    options: Options,
    reporter: Reporter,
) -> BranchResult:
    if plan.parent is None:
        refs = hub.refs(repo_id)
        if content.branch not in refs.branches:
            hub.create_branch(repo_id, content.branch, refs.branches.get(MAIN))
            refs = hub.refs(repo_id)
        if content.branch not in refs.branches:
            raise HubUnavailable(
                f"{hub.endpoint} says that it made branch {content.branch} of {repo_id}, and it is"
                " not there",
                url=hub.endpoint,
                hint="check the endpoint; a proxy may answer in the Hub's place",
            )
        plan = _plan(hub, repo_id, refs, content)
    if plan.is_empty:
        return BranchResult(plan=plan, committed=None)
    reporter.stage(f"publish {content.branch}", plan.upload_bytes, "bytes")
    commit = BranchCommit(
        hub=hub,
        repo_id=repo_id,
        content=content,
        plan=plan,
        before=refs,
        create_pr=options.create_pr,
        wait=options.wait,
    )
    committed = commit.send(reporter)
    reporter.done()
    return BranchResult(plan=plan, committed=committed)
