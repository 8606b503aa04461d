"""Who may run code here. Fails closed: what is not clearly allowed is refused.

What denies comes first: a policy's `deny`, and a policy that asks for a lock. Then, in this order,
what can allow: the caller's `trust_remote_code`, the project's lock, the policies and settings, the
decision that was made when these bytes were loaded before, a signature of a trusted signer (looked
at when the bytes are here), and last the Hub's own mark for the publisher. Where a machine's policy
is binding, the caller and the user cannot allow anything.

Bytes that came by a bundle inherit no decision before the Hub has listed them: for them only the
argument, a lock and a signature count.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from .errors import InputError, TrustError
from .policies import Rules

TrustArgument = bool | list[str] | tuple[str, ...]


class Consent(Enum):
    """Why code of a repository may run."""

    ARGUMENT = "trust_remote_code"
    LOCK = "lock"
    SETTINGS = "settings"
    POLICY = "policy"
    REMEMBERED = "remembered"
    SIGNATURE = "signature"
    PUBLISHER = "trusted publisher"
    LOCAL = "local folder"


def check_argument(trust_remote_code: TrustArgument) -> None:
    """Refuse what is neither a boolean nor a list of repository ids.

    Raises:
        InputError: such as for the string "org/k", whose letters would be taken for ids.
    """
    if isinstance(trust_remote_code, bool):
        return
    listed = isinstance(trust_remote_code, (list, tuple))
    if not listed or not all(isinstance(item, str) for item in trust_remote_code):
        raise InputError(
            f"trust_remote_code={trust_remote_code!r} is neither True, False nor a list",
            hint='pass True, or the repositories that you trust: ["org/kernel"]',
        )


def decide(
    repo_id: str,
    commit: str | None = None,
    *,
    argument: TrustArgument,
    rules: Rules,
    locked: bool,
    remembered: bool,
    seen: bool,
    signature_counts: bool = True,
    ask_hub: Callable[[], bool] | None,
) -> Consent:
    """Decide whether code of a repository may run.

    Args:
        repo_id: "org/name".
        commit: the commit that is to run, None where that is not known.
        argument: the caller's `trust_remote_code`: True for everything, or a list of exact ids.
        rules: what the policies and settings say.
        locked: whether a lock that counts pins these bytes.
        remembered: whether these very bytes were allowed before for their publisher's sake.
        seen: whether the Hub itself has listed the commit's files; what is known of them from a
            bundle alone inherits no decision about the commit, the repository or its publisher.
        signature_counts: whether a signature may still turn out to allow it.
        ask_hub: asks for the publisher's mark; None where the Hub may not be asked (offline).

    Returns:
        Why it may. SIGNATURE says only that a signer is trusted: the signature itself has to be
        checked before the code runs.

    Raises:
        TrustError: nothing allows it.
    """
    if (policy := rules.denied_by(repo_id, commit)) is not None:
        raise TrustError(
            f"{repo_id} is denied by {policy}",
            hint="`kernelhub trust list` shows by which entry",
        )
    if rules.require_lock and not locked:
        raise TrustError(
            f"{repo_id} is in no lock, and the policy in force runs locked kernels only",
            hint=f"add {repo_id} to the project's requirements and run `kernelhub lock`",
        )
    consent = _given(repo_id, commit, argument, rules, locked=locked, seen=seen)
    if consent is not None:
        return consent
    if seen and remembered and rules.hub_trusted:
        return Consent.REMEMBERED
    if signature_counts and any(
        signer.trust and not signer.revoked for signer in rules.signers(repo_id)
    ):
        return Consent.SIGNATURE
    if not seen:
        raise _unseen(repo_id, rules)
    return _by_the_hub(repo_id, rules, ask_hub)


def _given(
    repo_id: str,
    commit: str | None,
    argument: TrustArgument,
    rules: Rules,
    *,
    locked: bool,
    seen: bool,
) -> Consent | None:
    named = argument is True or (not isinstance(argument, bool) and repo_id in argument)
    if named and not rules.binding:
        return Consent.ARGUMENT
    if locked and rules.locks:
        return Consent.LOCK
    if seen and rules.allows(repo_id, commit):
        is_setting = {repo_id, repo_id.partition("/")[0]} & rules.settings
        return Consent.SETTINGS if is_setting and not rules.binding else Consent.POLICY
    return None


def _by_the_hub(repo_id: str, rules: Rules, ask_hub: Callable[[], bool] | None) -> Consent:
    publisher = repo_id.partition("/")[0]
    if not rules.hub_trusted:
        raise _refusal(repo_id, f"no policy names it or its publisher {publisher!r}", rules)
    if ask_hub is None:
        raise _refusal(
            repo_id,
            f"whether {publisher!r} is a trusted publisher cannot be asked offline, and no earlier"
            " decision for this kernel is on this disk",
            rules,
        )
    if ask_hub():
        return Consent.PUBLISHER
    raise _refusal(
        repo_id,
        f"the Hub does not mark its publisher {publisher!r} as trusted, and loading a kernel runs"
        " its code",
        rules,
    )


def _unseen(repo_id: str, rules: Rules) -> TrustError:
    remedy = "load it once online, so that its files are held against what the Hub lists"
    if not rules.binding:
        remedy += f", or read its code and pass trust_remote_code=[{repo_id!r}]"
    if rules.locks:
        remedy += ", or unbundle it against a lock that pins it"
    return TrustError(
        f"{repo_id} came by a bundle, and the Hub has not been asked whether these are its bytes:"
        " policies, settings and earlier decisions do not count for it",
        hint=remedy,
    )


def _refusal(repo_id: str, why: str, rules: Rules) -> TrustError:
    """What to do about it is not to trust the kernel where its signer was found not to be."""
    if revoked := rules.all_revoked(repo_id):
        return TrustError(
            f"{repo_id}: its signer is revoked ({revoked}), and {why}",
            hint="its publisher has to sign it anew with a key that is not; trusting the kernel"
            " does not let run what a revoked signer has signed",
        )
    return TrustError(f"{repo_id}: {why}", hint=_remedies(repo_id, rules))


def _remedies(repo_id: str, rules: Rules) -> str:
    publisher = repo_id.partition("/")[0]
    if rules.binding:
        return (
            f"{rules.machine.path} is binding on this machine: only who administers it can allow"
            " more; trust_remote_code, locks and settings do not count"
        )
    return (
        f"read the kernel's code (`kernelhub inspect {repo_id}`), then pass"
        f" trust_remote_code=[{repo_id!r}] (True trusts every kernel), or run"
        f" `kernelhub trust add {repo_id}` (or {publisher} for all of this publisher), or set"
        f" KERNELHUB_TRUST={repo_id}"
    )
