"""Make one commit, and make it once, though its answer may be lost on the way."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from kernelhub.errors import VersionNotFound
from kernelhub.reporter import Reporter

from .hub import Committed, Hub, Refs
from .hub_errors import CommitRaced, CommitUnknown
from .publish_content import Content
from .publish_plan import MAIN, BranchPlan, plan_branch
from .uploads import Upload

log = logging.getLogger(__name__)

_PAUSES = (2.0, 8.0)
_LOOK_BACK = 20  # pull requests whose files are compared: one listing each


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchCommit:
    """The commit that brings one branch to its content.

    Attributes:
        target: the branch that it is sent to; that of the plan, unless that one is still to appear.
        plan: what it changes, against `plan.parent`.
        description: the longer text of the commit or pull request.
        before: branches and pull requests as they were when it was planned.
    """

    hub: Hub
    repo_id: str
    content: Content
    target: str
    plan: BranchPlan
    before: Refs
    create_pr: bool
    description: str = ""

    def proposed(self) -> Committed | None:
        """The newest pull request that holds these bytes already, if one of the last few does."""
        numbers = {ref: ref.rsplit("/", 1)[-1] for ref in self.before.pull_requests}
        refs = [ref for ref, number in numbers.items() if number.isdigit()]
        refs.sort(key=lambda ref: int(numbers[ref]), reverse=True)
        for ref in refs[:_LOOK_BACK]:
            if self._holds(self.before.pull_requests[ref]):
                return self._committed(ref, self.before.pull_requests[ref])
        return None

    def send(self, reporter: Reporter) -> Committed:
        """Send it; after a lost answer, again only if the Hub shows that it was not made.

        Raises:
            CommitRaced: the branch moved on since it was planned; nothing was changed.
            HubError: the Hub refused, or still does not answer.
        """
        for pause in _PAUSES:
            made = self._try(reporter, pause)
            if made is not None:
                return made
        return self._send_once(reporter)

    def _try(self, reporter: Reporter, pause: float) -> Committed | None:
        """Send it, or wait and return None if that did not come through."""
        try:
            return self._send_once(reporter)
        except CommitUnknown as error:
            log.warning("%s; it was not made, sending again in %.0f s", error.message, pause)
            self.hub.pause(pause, error)
            return None

    def _send_once(self, reporter: Reporter) -> Committed:
        try:
            return self._post(reporter)
        except CommitUnknown:
            landed = self._landed()
            if landed is None:
                raise
            return landed
        except (CommitRaced, VersionNotFound) as error:  # moved on, or done and removed
            landed = self._landed()  # of an earlier sending that arrived late
            if landed is not None:
                return landed
            raise CommitRaced(
                f"{self.target} of {self.repo_id} moved on from {self.plan.parent} while "
                "this was published; nothing was changed",
                status=412,
                hint="somebody else published: look at their commit, then run again",
            ) from error

    def _post(self, reporter: Reporter) -> Committed:
        assert self.plan.parent is not None  # noqa: S101 - the target exists
        files = {file.path: file for file in self.content.files}
        return self.hub.commit(
            self.repo_id,
            self.target,
            uploads=[
                Upload(
                    path=path,
                    source=self.content.sources[path],
                    size=files[path].size,
                    sha256=files[path].sha256,
                )
                for path in (*self.plan.added, *self.plan.updated)
            ],
            deletions=self.plan.deleted,
            parent=self.plan.parent,
            message=_message(self.plan),
            description=self.description,
            create_pr=self.create_pr,
            progress=reporter.advance,
        )

    def _landed(self) -> Committed | None:
        """The commit whose answer was lost, if it was made after all."""
        now = self.hub.refs(self.repo_id)
        if self.create_pr:
            fresh = now.pull_requests.keys() - self.before.pull_requests.keys()
            candidates = {ref: now.pull_requests[ref] for ref in sorted(fresh)}
        else:
            candidates = {self.target: now.branches.get(self.target, "")}
        for ref, head in candidates.items():
            if head and head != self.plan.parent and self._holds(head):
                return self._committed(ref, head)
        return None

    def _holds(self, head: str) -> bool:
        remote = self.hub.tree(self.repo_id, head)
        return plan_branch(self.plan.branch, head, self.content.files, remote).is_empty

    def _committed(self, ref: str, head: str) -> Committed:
        base = f"{self.hub.endpoint}/kernels/{self.repo_id}"
        number = ref.rsplit("/", 1)[-1]
        return Committed(
            oid=head,
            url=f"{base}/commit/{head}",
            pull_request=f"{base}/discussions/{number}" if self.create_pr else None,
        )


def _message(plan: BranchPlan) -> str:
    if plan.branch == MAIN:
        return "Update the card"
    changes = (("add", plan.added), ("update", plan.updated), ("remove", plan.deleted))
    parts = [f"{verb} {len(paths)}" for verb, paths in changes if paths]
    return f"Publish {plan.branch}: {', '.join(parts)} files"
