"""The trust policies in force: the machine's, the user's, and what the settings name.

A policy that cannot be read or understood stops every load: it is never taken for an empty one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from .disk import reading
from .formats.policy import Policy, matches
from .settings import Settings

if TYPE_CHECKING:
    from .formats.policy_toml import Signer

NONE = Policy()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the policies say together.

    Where the machine's policy is binding only it can allow; denying, and asking for a signature or
    a lock, both can.
    """

    machine: Policy = NONE
    user: Policy = NONE
    settings: frozenset[str] = field(default=frozenset())

    @property
    def binding(self) -> bool:
        """Whether only the machine's policy can allow."""
        return self.machine.binding

    @property
    def locks(self) -> bool:
        """Whether being in a project's lock is consent."""
        return self.machine.locks and self.user.locks

    @property
    def hub_trusted(self) -> bool:
        """Whether the Hub's mark for a publisher is consent."""
        return self.machine.hub_trusted and self.user.hub_trusted

    @property
    def require_lock(self) -> bool:
        """Whether a kernel that is in no lock is refused."""
        return self.machine.require_lock or self.user.require_lock

    def allows(self, repo_id: str, commit: str | None) -> bool:
        """Whether a policy, or a setting, names the kernel."""
        named = [self.machine.allowed]
        if not self.binding:
            named += [self.user.allowed, self.settings]
        return any(matches(subjects, repo_id, commit) for subjects in named)

    def denied_by(self, repo_id: str, commit: str | None) -> str | None:
        """The file of the policy that denies the kernel, or None."""
        for policy in (self.machine, self.user):
            if matches(policy.denied, repo_id, commit):
                return policy.path or "a policy"
        return None

    def signature_required_by(self, repo_id: str) -> str | None:
        """The file of the policy that asks for a signature of this kernel, or None."""
        for policy in (self.machine, self.user):
            if matches(policy.require_signature, repo_id):
                return policy.path or "a policy"
        return None

    def signers(self, repo_id: str) -> tuple[Signer, ...]:
        """Who may sign this kernel, the revoked ones included.

        Those whom the user names do not count where the machine's policy is binding, or is what
        asks for the signature; those whom the user revokes always do.
        """
        own = not (self.binding or matches(self.machine.require_signature, repo_id))
        users = (s for s in self.user.signers if own or s.revoked)
        named = (*self.machine.signers, *users)
        return tuple(s for s in named if matches(s.publishers, repo_id))

    def all_revoked(self, repo_id: str) -> str:
        """The names of this kernel's signers if each of them is revoked, else ""."""
        signers = self.signers(repo_id)
        return ", ".join(s.name for s in signers) if all(s.revoked for s in signers) else ""


def rules(now: Settings) -> Rules:
    """The policies in force.

    Raises:
        FormatError: a policy is damaged, or of a newer release.
        StoreError: it cannot be read.
    """
    return Rules(
        machine=_read(now.machine_policy),
        user=_read(now.user_policy),
        settings=frozenset(now.trust),
    )


_parsed: dict[Path, tuple[tuple[int, int, int, int], Policy]] = {}


def _read(path: Path | None) -> Policy:
    if path is None:
        return NONE
    with reading(path):
        try:
            state = path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return NONE
        facts = (state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino)
        known = _parsed.get(path)
        if known is None or known[0] != facts:
            from .formats.policy_toml import parse_policy  # imports pydantic

            known = (facts, parse_policy(path.read_bytes(), str(path)))
            _parsed[path] = known
    return known[1]
