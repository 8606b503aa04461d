"""What a trust policy says, and whom its subjects mean. `policy_toml` reads one from its file.

Every load asks, and where there is no policy file nothing of pydantic is needed to answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .names import repo_id_fault

if TYPE_CHECKING:
    from .policy_toml import Signer

PUBLISHER = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """One policy, with the file that states it; the default one names nobody.

    Attributes:
        path: the file, None where there is none.
        binding: whether only this policy can allow, where it is a machine's.
        allowed: publishers, repositories and commits (as subjects) that may run.
        denied: subjects that may not, whatever else is said.
        hub_trusted: whether publishers that the Hub marks as trusted may run.
        locks: whether being in a project's lock is consent.
        require_lock: whether a kernel has to be in one.
        require_signature: subjects ("*" is all) that need a signature of a signer.
        signers: who may sign.
    """

    path: str | None = None
    binding: bool = False
    allowed: frozenset[str] = frozenset()
    denied: frozenset[str] = frozenset()
    hub_trusted: bool = True
    locks: bool = True
    require_lock: bool = False
    require_signature: frozenset[str] = frozenset()
    signers: tuple[Signer, ...] = ()


def subject_fault(text: str) -> str | None:
    """Why `text` is neither a publisher, a repository nor a repository at a commit, or None."""
    name, at, commit = text.partition("@")
    if at and not (_COMMIT.fullmatch(commit) and "/" in name):
        return "a commit is written org/name@<40 hexadecimal digits>"
    if "/" in name:
        return repo_id_fault(name)
    return None if PUBLISHER.fullmatch(name) else f"{text[:60]!r} is no publisher"


def matches(subjects: Iterable[str], repo_id: str, commit: str | None = None) -> bool:
    """Whether a kernel is meant by one of the subjects ("*", "org", "org/k", "org/k@<commit>")."""
    meant = {"*", repo_id, repo_id.partition("/")[0]}
    if commit is not None:
        meant.add(f"{repo_id}@{commit}")
    return not meant.isdisjoint(subjects)
