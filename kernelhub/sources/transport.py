"""GET from the Hub: huggingface_hub's session and token, our retries, deadline and errors.

The library's own calls retry some requests and not others, and wait without a limit; so only its
session (proxies, certificates, client factories that users install), its token and its offline
switch are used. Errors of the HTTP library are translated here and in `refusals`, nowhere else.
"""

from __future__ import annotations

import contextlib
import json
import logging
import platform
import random
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import urlsplit

from huggingface_hub import constants, get_token
from huggingface_hub.errors import OfflineModeIsEnabled
from huggingface_hub.utils import get_session  # type: ignore[attr-defined] # lazy, unexported

from kernelhub._version import __version__
from kernelhub.errors import HubRateLimited, HubUnavailable

from . import certificates
from .opening import while_allowed
from .refusals import FAILURES, LATER, TransientError, refusal

logger = logging.getLogger(__name__)
T = TypeVar("T")

ATTEMPTS = 5
_JSON_LIMIT = 64 << 20
_LONGEST_WAIT = 20.0
_LONGEST_ABOVE_ASKED = 4.0
_NETWORK = (
    "check the network, HF_ENDPOINT and the variables of proxies (HTTPS_PROXY, NO_PROXY);"
    " KERNELHUB_OFFLINE=1 uses what is on this disk"
)


class Transport:
    """Requests of one load: one deadline over all of them, also where threads share it.

    Args:
        endpoint: base URL; the token is sent to its origin only.
        timeout: seconds that all requests together may take.
        quick: fail at once where a caller has something to fall back to.
    """

    def __init__(self, endpoint: str, timeout: float, *, quick: bool = False) -> None:
        self.endpoint = endpoint
        self.cancelled = threading.Event()
        self._ends = time.monotonic() + timeout
        self._quick = quick
        self._token: str | None = None

    def get_json(self, url: str) -> tuple[Any, Mapping[str, str]]:
        """The JSON of an answer, and its headers (names in any case).

        Raises:
            HubUnavailable: no answer in time, or one that is not JSON; and as `get`.
        """

        def read(response: Any) -> tuple[Any, Mapping[str, str]]:
            body = bytearray()
            for piece in response.iter_bytes():
                self.check()
                body += piece
                if len(body) > _JSON_LIMIT:
                    raise HubUnavailable(
                        f"{url} answers more than {_JSON_LIMIT} bytes",
                        url=url,
                        hint=f"is {self.endpoint} a Hub? HF_ENDPOINT names it",
                    )
            try:
                return json.loads(bytes(body)), response.headers
            except (ValueError, RecursionError) as error:
                raise HubUnavailable(
                    f"{url} does not answer JSON",
                    status=response.status_code,
                    url=url,
                    hint=f"is {self.endpoint} a Hub? HF_ENDPOINT names it",
                ) from error

        return self.get(url, read)

    def get(
        self,
        url: str,
        consume: Callable[[Any], T],
        *,
        headers: Callable[[], Mapping[str, str]] = dict,
        progress: Callable[[], int] = int,
    ) -> T:
        """GET `url` and let `consume` read the streamed answer; both are retried together.

        Args:
            url: below the endpoint.
            consume: reads the answer. It may raise TransientError to ask for another attempt.
            headers: those to add to an attempt, asked anew each time.
            progress: how far things are; attempts count from 0 again when this has moved.

        Raises:
            NotFoundError, RepositoryNotFound, VersionNotFound: the Hub says so.
            HubAuthError, HubRateLimited, HubUnavailable, HubError: as their names say.
        """
        attempt, limited, before = 0, 0, progress()
        while True:
            try:
                return self._once(url, consume, headers())
            except TransientError as failure:  # noqa: PERF203 - this loop is the retry
                if progress() != before:
                    attempt, limited, before = 0, 0, progress()
                if isinstance(failure.error, HubRateLimited):  # obeying a limit is no failure
                    limited += 1
                else:
                    attempt += 1
                self._pause(failure, attempt, limited)

    def _once(self, url: str, consume: Callable[[Any], T], extra: Mapping[str, str]) -> T:
        self.check()
        headers = {**self._headers(url), **extra}
        try:
            response = self._open(url, headers)
            with contextlib.closing(response):
                if response.status_code >= 300:
                    raise refusal(response, url, self.check)
                return consume(response)
        except OfflineModeIsEnabled as error:
            raise HubUnavailable(
                "huggingface_hub was imported with HF_HUB_OFFLINE set",
                url=url,
                hint="unset it before the process starts",
            ) from error
        except FAILURES as error:
            if certificates.is_about_a_certificate(error):
                raise _no_answer(url, error, hint=certificates.HINT) from error
            raise TransientError(_no_answer(url, error)) from error

    def _open(self, url: str, headers: Mapping[str, str]) -> Any:
        """An answer whose head has come, or the failure of `check` if it does not come in time."""
        timeout = min(float(constants.HF_HUB_DOWNLOAD_TIMEOUT), max(self.remaining(), 0.001))
        session = _session()
        request = session.build_request("GET", url, headers=headers, timeout=timeout)
        return while_allowed(
            self.check,
            lambda: session.send(request, stream=True, follow_redirects=True),
            lambda response: response.close(),
        )

    def check(self) -> None:
        """Raise if the time is up, or another thread of this load has failed."""
        if self.cancelled.is_set():
            raise HubUnavailable("the download was given up", url=self.endpoint, hint=LATER)
        if self.remaining() <= 0:
            raise HubUnavailable(
                f"{self.endpoint} did not deliver in the time allowed",
                url=self.endpoint,
                hint="KERNELHUB_TIMEOUT (seconds) allows more; what has arrived is kept",
            )

    def remaining(self) -> float:
        return self._ends - time.monotonic()

    def _pause(self, failure: TransientError, attempt: int, limited: int) -> None:
        """Wait before the next attempt, or raise the failure where there will be none.

        A Hub that keeps saying "later" is asked less and less often, also where it names a wait of
        nothing: what many processes are told to do at once they would otherwise do for ever.
        """
        doublings = min(attempt + limited, 7)
        if failure.wait is None:
            wait = min(_LONGEST_WAIT, 0.25 * 2.0**doublings)
        else:
            wait = max(failure.wait, min(_LONGEST_ABOVE_ASKED, 0.05 * 2.0**doublings))
        wait *= random.uniform(1.0, 1.25)  # noqa: S311 - spreads ranks that started together
        if self._quick or attempt >= ATTEMPTS or wait >= self.remaining():
            raise failure.error from failure.__cause__
        logger.info("%s; trying again in %.1f s", failure.error.message, wait)
        if self.cancelled.wait(wait):
            self.check()

    def _headers(self, url: str) -> dict[str, str]:
        headers = {"User-Agent": user_agent()}
        if origin(url) == origin(self.endpoint) and not constants.HF_HUB_DISABLE_IMPLICIT_TOKEN:
            if self._token is None:
                self._token = _stored_token()
            if self._token:
                headers["Authorization"] = f"Bearer {self._token}"
        return headers


def user_agent() -> str:
    """What the Hub is told about this client; no more than its name if telemetry is off."""
    if constants.HF_HUB_DISABLE_TELEMETRY:
        return f"kernelhub/{__version__}"
    return f"kernelhub/{__version__}; python/{platform.python_version()}"


def origin(url: str) -> tuple[str, str | None, int | None]:
    """Scheme, host and port of a URL."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)


def _stored_token() -> str:
    """The user's token, empty if there is none."""
    try:
        return get_token() or ""  # reads files, and may renew a login
    except OSError as error:  # another user's home: what is public needs no token
        logger.warning("the stored token cannot be read, and none is sent: %s", error)
        return ""


def _session() -> Any:
    try:
        return get_session()
    except (OSError, ValueError) as error:  # a certificate file or proxy URL that is unusable
        raise HubUnavailable(
            f"no HTTP session can be made: {error}",
            hint="check the variables of proxies (HTTPS_PROXY) and certificates (SSL_CERT_FILE)",
        ) from error


def _no_answer(url: str, error: Exception, hint: str = _NETWORK) -> HubUnavailable:
    reason = str(error) or type(error).__name__
    return HubUnavailable(f"{url}: {reason}", url=url, hint=hint)
