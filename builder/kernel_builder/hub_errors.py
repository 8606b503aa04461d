"""Errors of huggingface_hub and the network library below it, translated into ours."""

from __future__ import annotations

from typing import Any

from kernelhub.errors import (
    HubAuthError,
    HubError,
    HubRateLimited,
    HubUnavailable,
    KernelHubError,
    RepositoryNotFound,
    VersionNotFound,
)
from kernelhub.sources import certificates

_LATER = frozenset({408, 429, 500, 502, 503, 504})
_NOT_THE_PROTOCOL = (ValueError, KeyError, TypeError, AttributeError)


class CommitRaced(HubError):
    """412: the branch is no longer at the commit that the caller looked at."""


class CommitUnknown(HubUnavailable):
    """The answer to a commit was lost: it may or may not have been made."""


def translate(error: Exception, what: str) -> KernelHubError:
    """Our error for one of huggingface_hub's, or of the network library below it."""
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    error = _root(error)
    if isinstance(error, KernelHubError):
        return error
    if isinstance(error, OfflineModeIsEnabled):
        return HubUnavailable(f"cannot {what}: offline", hint="unset HF_HUB_OFFLINE to publish")
    reason = str(error) or type(error).__name__
    # BadRequestError is a ValueError too, and an answer all the same.
    if isinstance(error, _NOT_THE_PROTOCOL) and not isinstance(error, HfHubHTTPError):
        return HubUnavailable(
            f"cannot {what}: the answer is not the Hub's protocol ({reason})",
            hint="check the endpoint; a proxy or login page may answer in the Hub's place",
        )
    if not isinstance(error, HfHubHTTPError):
        about_it = certificates.is_about_a_certificate(error)
        return HubUnavailable(
            f"cannot {what}: {reason}",
            hint=certificates.HINT if about_it else "check the network, HF_ENDPOINT and proxies",
        )
    status = error.response.status_code
    said = error.server_message or ""
    facts: dict[str, Any] = {"status": status, "url": str(error.response.url)}
    if isinstance(error, GatedRepoError) or status == 403:
        return HubAuthError(
            f"cannot {what}: forbidden (403) {said}".rstrip(),
            hint="use a token with write access; publishing kernels to some namespaces needs the "
            "Hub's approval first",
            **facts,
        )
    if isinstance(error, RepositoryNotFoundError):
        return RepositoryNotFound(
            f"cannot {what}: no such repository, or it is private",
            hint="check the name; for a private repository give --token or log in",
        )
    if isinstance(error, RevisionNotFoundError):
        return VersionNotFound(f"cannot {what}: no such revision")
    return _by_status(status, what, said, facts)


def _by_status(status: int, what: str, said: str, facts: dict[str, Any]) -> HubError:
    text = f"cannot {what}: the Hub answered {status} {said}".rstrip()
    if status == 401:
        return HubAuthError(
            text, hint="give --token, set HF_TOKEN, or log in with `hf auth login`", **facts
        )
    if status == 412:
        return CommitRaced(
            text, hint="somebody else published in between: look, then run again", **facts
        )
    if status == 429:
        return HubRateLimited(text, hint="wait and run again: nothing is half done", **facts)
    if status >= 500 or status == 408:
        return HubUnavailable(text, hint="run again later: nothing is half done", **facts)
    return HubError(text, **facts)


def commit_error(error: Exception, what: str) -> KernelHubError:
    translated = translate(error, what)
    if not isinstance(translated, HubUnavailable) or not is_passing(error):
        return translated
    return CommitUnknown(
        translated.message, status=translated.status, url=translated.url, hint=translated.hint
    )


def library_errors() -> tuple[type[Exception], ...]:
    """What calls of huggingface_hub raise for reasons outside this program.

    An answer that is no JSON, or JSON of another shape, surfaces as one of _NOT_THE_PROTOCOL.
    """
    from huggingface_hub.errors import OfflineModeIsEnabled

    return (
        _http_error(),
        OfflineModeIsEnabled,
        ConnectionError,
        TimeoutError,
        RuntimeError,
        *_NOT_THE_PROTOCOL,
    )


def _root(error: Exception) -> Exception:
    """What a file's upload failed of: the library wraps it into a RuntimeError."""
    while isinstance(error, RuntimeError) and isinstance(error.__cause__, Exception):
        error = error.__cause__
    return error


def _http_error() -> type[Exception]:
    """Base class of the network library's errors: httpx under 1.x, httpx2 under 2.x."""
    from huggingface_hub import errors

    base: type[Exception] = errors.HTTPError  # type: ignore[attr-defined]
    return base


def is_passing(error: Exception) -> bool:
    """Whether the same request may succeed a little later."""
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    error = _root(error)
    if isinstance(error, OfflineModeIsEnabled) or certificates.is_about_a_certificate(error):
        return False
    if isinstance(error, HfHubHTTPError):
        return error.response.status_code in _LATER
    return isinstance(error, (_http_error(), ConnectionError, TimeoutError))


def asked_wait(error: Exception) -> float | None:
    """Seconds that the Hub asked to wait: Retry-After, or the reset of its RateLimit header."""
    response = getattr(_root(error), "response", None)
    if response is None:
        return None
    after = response.headers.get("Retry-After", "")
    if after.isdigit():
        return float(after)
    for part in response.headers.get("RateLimit", "").split(";"):
        key, _, value = part.strip().partition("=")
        if key == "t" and value.isdigit():
            return float(value) + 1
    return None
