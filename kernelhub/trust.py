"""Who may run code here. Fails closed: what is not clearly allowed is refused.

In this order: the caller's `trust_remote_code`, the user's settings, the decision that was made
when these bytes were loaded before, and last the Hub's own mark for the publisher.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import Enum

from .errors import InputError, TrustError

TrustArgument = bool | list[str] | tuple[str, ...]


class Consent(Enum):
    """Why code of a repository may run."""

    ARGUMENT = "trust_remote_code"
    SETTINGS = "settings"
    REMEMBERED = "remembered"
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
    *,
    argument: TrustArgument,
    allowed: Collection[str],
    remembered: bool,
    ask_hub: Callable[[], bool] | None,
) -> Consent:
    """Decide whether code of a repository may run.

    Args:
        repo_id: "org/name".
        argument: the caller's `trust_remote_code`: True for everything, or a list of exact ids.
        allowed: repositories or publishers of the settings.
        remembered: whether these very bytes were allowed before for their publisher's sake.
        ask_hub: asks for the publisher's mark; None where the Hub may not be asked (offline).

    Raises:
        TrustError: nothing allows it.
    """
    publisher = repo_id.partition("/")[0]
    if argument is True or (not isinstance(argument, bool) and repo_id in argument):
        return Consent.ARGUMENT
    if repo_id in allowed or publisher in allowed:
        return Consent.SETTINGS
    if remembered:
        return Consent.REMEMBERED
    if ask_hub is None:
        raise TrustError(
            f"{repo_id}: whether {publisher!r} is a trusted publisher cannot be asked offline, and"
            " no earlier decision for this kernel is on this disk",
            hint=_remedies(repo_id, publisher),
        )
    if ask_hub():
        return Consent.PUBLISHER
    raise TrustError(
        f"{repo_id}: the Hub does not mark its publisher {publisher!r} as trusted,"
        " and loading a kernel runs its code",
        hint=_remedies(repo_id, publisher),
    )


def _remedies(repo_id: str, publisher: str) -> str:
    return (
        f"read the kernel's code, then pass trust_remote_code=[{repo_id!r}] (True trusts every"
        f" kernel), or set KERNELHUB_TRUST={repo_id} (or {publisher} for all of this publisher)"
    )
