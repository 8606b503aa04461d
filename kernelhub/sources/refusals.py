"""What an answer of a Hub that is no success stands for, as an error of ours."""

from __future__ import annotations

import email.utils
import json
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from kernelhub.errors import (
    HubAuthError,
    HubError,
    HubRateLimited,
    HubUnavailable,
    KernelHubError,
    NotFoundError,
    RepositoryNotFound,
    VersionNotFound,
)

try:  # which HTTP library the session is of: httpx2 under huggingface_hub 2, httpx under 1
    from huggingface_hub.utils import httpx  # type: ignore[attr-defined]
except ImportError:  # releases of 1.x that do not name it yet
    import httpx  # type: ignore[no-redef,import-not-found,unused-ignore]

LATER = "try again later; KERNELHUB_OFFLINE=1 uses what is on this disk"
FAILURES: tuple[type[Exception], ...] = (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError)
"""Errors of the HTTP library: no answer, or not all of one."""

_ERROR_LIMIT = 4096
_TRANSIENT = frozenset({408, 425, 500, 502, 503, 504})
_RATE_LIMIT = re.compile(r'"\w+"\s*;\s*r\s*=\s*(\d+)\s*;\s*t\s*=\s*(\d+)')


class TransientError(Exception):
    """An attempt failed in a way that another may not; `wait` is what the Hub asked for."""

    def __init__(self, error: KernelHubError, wait: float | None = None) -> None:
        super().__init__(str(error))
        self.error = error
        self.wait = wait


def refusal(response: Any, url: str, check: Callable[[], None]) -> Exception:
    """The error that an answer with a status of 300 or more stands for."""
    status, code = response.status_code, response.headers.get("X-Error-Code")
    text = f"{url} answers {status}: {_server_text(response, check)}"
    by_code = _by_code(code, text, status, url) if code else None
    if by_code is not None:
        return by_code
    if status == 429:
        wait = server_wait(response.headers)
        limited = HubRateLimited(text, status=status, url=url, hint=_limit_hint(wait))
        return TransientError(limited, wait)
    if status in _TRANSIENT:
        error = HubUnavailable(text, status=status, url=url, hint=LATER)
        return TransientError(error, server_wait(response.headers))
    if status in (401, 403):
        return _auth(text, status, url)
    if status == 404:
        return RepositoryNotFound(text, hint="check the name, and HF_ENDPOINT")
    if status >= 500 or status < 400:
        return HubUnavailable(text, status=status, url=url, hint=LATER)
    return HubError(text, status=status, url=url, hint="check the name, and HF_ENDPOINT")


def _limit_hint(wait: float | None) -> str:
    """What to do about a 429, with the wait that the Hub asks for."""
    if wait is None:
        return "try again later; a token (HF_TOKEN) raises the limit"
    return (
        f"the Hub asks to wait {wait:.0f} s, which KERNELHUB_TIMEOUT (seconds) may allow;"
        " a token (HF_TOKEN) raises the limit"
    )


def _by_code(code: str, text: str, status: int, url: str) -> Exception | None:
    if code == "RepoNotFound":
        return RepositoryNotFound(
            text, hint="check the name; if it is private, a token that may read it is needed"
        )
    if code == "RevisionNotFound":
        return VersionNotFound(text, hint="`kernelhub versions` lists what there is")
    if code == "EntryNotFound":
        return NotFoundError(text, hint="its publisher has to publish it again, with that file")
    return _auth(text, status, url) if code == "GatedRepo" else None


def _auth(text: str, status: int, url: str) -> HubAuthError:
    hint = "set HF_TOKEN, or log in with `hf auth login`; the token must reach this repository"
    return HubAuthError(text, status=status, url=url, hint=hint)


def _server_text(response: Any, check: Callable[[], None]) -> str:
    """What the server says, in one line; not worth an error of its own, but for the deadline's."""
    if message := response.headers.get("X-Error-Message"):
        return str(message)[:500]
    body = bytearray()
    try:
        for piece in response.iter_bytes():
            check()
            body += piece
            if len(body) >= _ERROR_LIMIT:
                break
    except FAILURES:
        return "(no text)"
    text = bytes(body[:_ERROR_LIMIT]).decode("utf-8", "replace")
    try:
        parsed = json.loads(text)
    except ValueError:
        parsed = None
    if isinstance(parsed, dict) and isinstance(parsed.get("error"), str):
        text = parsed["error"]
    return " ".join(text.split())[:300] or "(no text)"


def server_wait(headers: Mapping[str, str]) -> float | None:
    """Seconds that the Hub asks to wait: `Retry-After` (seconds or a date), else `RateLimit`."""
    value = (headers.get("Retry-After") or "").strip()
    if value.isascii() and value.isdigit():
        return float(value[:9])
    if value:
        try:
            moment = email.utils.parsedate_to_datetime(value)
        except ValueError:
            return None
        return max(0.0, moment.timestamp() - time.time())
    limit = _RATE_LIMIT.search(headers.get("RateLimit") or "")
    if limit is not None and limit[1] == "0":
        return float(limit[2][:9])
    return None
