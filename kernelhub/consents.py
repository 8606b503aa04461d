"""Whether one kernel may run here: the decision before its bytes are here, and the last one after.

The rules are in `trust` and `signatures`; this asks the Hub, and remembers what it said.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from . import signatures
from .errors import TrustError
from .hashing import FileId
from .policies import Rules
from .resolution import Way
from .store import Repository
from .trust import Consent, TrustArgument, decide


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One kernel that is to run.

    Attributes:
        repository: its copies, and what is remembered of it.
        commit: the commit that is to run.
        argument: the caller's `trust_remote_code`.
        rules: the policies in force.
        locked: whether a lock that counts as consent pins its bytes.
        seen: whether the Hub has listed its files, not only a bundle.
        way: how the Hub may be asked.
    """

    repository: Repository
    commit: str
    argument: TrustArgument
    rules: Rules
    locked: bool
    seen: bool
    way: Way


def consent_before(asked: Asked, *, signature_counts: bool = True) -> Consent:
    """The decision that can be made before its bytes are here.

    Raises:
        TrustError: nothing allows it.
    """
    repository = asked.repository
    return decide(
        repository.repo_id,
        asked.commit,
        argument=asked.argument,
        rules=asked.rules,
        locked=asked.locked,
        remembered=asked.commit in repository.remembered().trusted,
        seen=asked.seen,
        signature_counts=signature_counts,
        ask_hub=None if asked.way.connect is None else lambda: _is_marked(asked),
    )


def _is_marked(asked: Asked) -> bool:
    """Whether the Hub marks the publisher as trusted; processes that start together ask once."""
    repository, way = asked.repository, asked.way
    assert way.connect is not None  # noqa: S101 - consent_before has seen to it

    def is_remembered() -> bool:
        return asked.commit in repository.remembered().trusted

    with repository.lock("trust", way.remaining() / 2, until=is_remembered):
        if is_remembered():
            return True
        marked = way.connect(False).is_trusted_publisher(repository.repo_id.partition("/")[0])
        if marked:
            repository.remember(lambda memory: memory.with_trusted(asked.commit))
    return marked


def consent_after(
    asked: Asked, consent: Consent, folder: Path, manifest: Mapping[str, FileId]
) -> tuple[Consent, str | None]:
    """The decision once its bytes are here and verified, with the name of their signer, if any.

    Raises:
        TrustError: a signature is asked for and is not there, or is not one of a signer that the
            policy names; or nothing but a signature would have allowed it; or one of a revoked
            signer, or for other bytes, is there.
        MissingExtra: a signature has to be verified, and what does that is not installed.
    """
    tentative = consent is Consent.SIGNATURE
    try:
        signer = signatures.enforce(
            asked.repository.repo_id,
            folder,
            manifest,
            asked.rules,
            is_consent=tentative,
            offline=asked.way.connect is None,
        )
    except TrustError as unsigned:
        required = asked.rules.signature_required_by(asked.repository.repo_id)
        if not tentative or required is not None or isinstance(unsigned, signatures.Barred):
            raise
        try:
            return consent_before(asked, signature_counts=False), None
        except TrustError as error:
            raise error from unsigned
    return consent, signer
