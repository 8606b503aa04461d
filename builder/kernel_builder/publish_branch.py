"""Bring one branch to its content; a version's branch appears together with its build.

Who reads a repository takes every branch `v<N>` for a version, so none may exist without a build,
not even for an instant or behind a killed publisher. A new version is therefore committed on
`publishing-v<N>`, a name that means nothing to readers; then `v<N>` is made at that commit, and
the other name is removed. A publisher that finds `publishing-v<N>` goes on from there. A pull
request for a version without a branch is opened against main, and its text says how to make the
branch of it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from kernelhub.errors import HubError, NotFoundError
from kernelhub.reporter import Reporter

from .hub import Committed, Hub, Refs
from .hub_errors import CommitRaced
from .publish_content import Content
from .publish_plan import MAIN, BranchPlan, plan_branch
from .publish_send import BranchCommit

log = logging.getLogger(__name__)

_STAGING = "publishing-"


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchResult:
    """One branch: what was planned, and the commit that did it (None: no change, or dry run).

    Attributes:
        note: what the publisher should know of it besides.
    """

    plan: BranchPlan
    committed: Committed | None
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchPublisher:
    """Publishes to one repository, which exists."""

    hub: Hub
    repo_id: str
    create_pr: bool

    def publish(
        self, content: Content, plan: BranchPlan, refs: Refs, reporter: Reporter
    ) -> BranchResult:
        """Do what was planned against `refs`, or what is left of it.

        Raises:
            CommitRaced: the branch moved on since it was planned; nothing was changed.
            HubError: the Hub refused or failed.
        """
        if plan.parent is None:
            refs = self.hub.refs(self.repo_id)
            if content.branch in refs.branches:  # main of a new repository, or somebody was faster
                plan = self._plan(content, refs, content.branch)
        if content.branch in refs.branches:
            result = self._commit(content, plan, refs, content.branch, reporter)
            self._clean_up(content.branch, refs)
            return result
        if self.create_pr:
            return self._propose(content, refs, reporter)
        return self._appear(content, refs, reporter)

    def _commit(
        self, content: Content, plan: BranchPlan, refs: Refs, target: str, reporter: Reporter
    ) -> BranchResult:
        if plan.is_empty:
            return BranchResult(plan=plan, committed=None)
        commit = BranchCommit(
            hub=self.hub,
            repo_id=self.repo_id,
            content=content,
            target=target,
            plan=plan,
            before=refs,
            create_pr=self.create_pr,
            description="" if target == content.branch else _how_to_appear(content, self.repo_id),
        )
        known = commit.proposed() if self.create_pr else None
        if known is not None:
            note = "this pull request holds the same bytes already; no other was opened"
            return BranchResult(plan=plan, committed=known, note=note)
        reporter.stage(f"publish {content.branch}", plan.upload_bytes, "bytes")
        committed = commit.send(reporter)
        reporter.done()
        return BranchResult(plan=plan, committed=committed)

    def _propose(self, content: Content, refs: Refs, reporter: Reporter) -> BranchResult:
        """Open a pull request against main for a branch that does not exist."""
        plan = self._plan(content, refs, MAIN)
        result = self._commit(content, plan, refs, MAIN, reporter)
        note = f"{content.branch} does not exist yet: the pull request says how to make it of that"
        return result if result.note else replace(result, note=note)

    def _appear(self, content: Content, refs: Refs, reporter: Reporter) -> BranchResult:
        """Commit beside the branch, then make it at that commit."""
        staging = _STAGING + content.branch
        if staging not in refs.branches:
            self.hub.create_branch(self.repo_id, staging, refs.branches.get(MAIN))
            refs = self.hub.refs(self.repo_id)
        plan = self._plan(content, refs, staging)
        result = self._commit(content, plan, refs, staging, reporter)
        head = result.committed.oid if result.committed else plan.parent
        self._make_branch(content.branch, head)
        self._clean_up(content.branch, self.hub.refs(self.repo_id))
        return result

    def _make_branch(self, branch: str, head: str | None) -> None:
        failure: Exception | None = None
        try:
            self.hub.create_branch(self.repo_id, branch, head)
        except (HubError, NotFoundError) as error:  # another publisher may have removed our start
            failure = error
        there = self.hub.refs(self.repo_id).branches.get(branch)
        if there == head:
            return
        if there is None and failure is not None:
            raise failure
        raise CommitRaced(
            f"{branch} of {self.repo_id} appeared while this was published; it is as it was made",
            status=409,
            hint="somebody else published: look at their commit, then run again",
        ) from failure

    def _clean_up(self, branch: str, refs: Refs) -> None:
        """Remove what a publication of a new version leaves once its branch is there."""
        staging = _STAGING + branch
        if self.create_pr or staging not in refs.branches:
            return
        try:
            self.hub.delete_branch(self.repo_id, staging)
        except (HubError, NotFoundError) as error:
            log.warning("%s stays in %s, harmless: %s", staging, self.repo_id, error.message)

    def _plan(self, content: Content, refs: Refs, target: str) -> BranchPlan:
        head = refs.branches[target]
        on_main = target == MAIN != content.branch
        remote = self.hub.tree(self.repo_id, head)
        return plan_branch(content.branch, head, content.files, remote, on_main=on_main)


def _how_to_appear(content: Content, repo_id: str) -> str:
    return (
        f"The build of a version whose branch `{content.branch}` does not exist yet. Instead of "
        f"merging it into main, make the branch of it: `hf repos branch create {repo_id} "
        f"{content.branch} --type kernel --revision refs/pr/NUMBER`, then close it."
    )
