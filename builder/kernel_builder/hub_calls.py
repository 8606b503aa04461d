"""How the calls of huggingface_hub are made: again where that helps, and never for ever.

The library bounds neither the silence of a connection nor a request, and its own repetitions add to
that. So a call runs in a thread that is left once the time of the whole publication is over.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from kernelhub.errors import HubUnavailable, KernelHubError
from kernelhub.sources.opening import while_allowed

from .hub_errors import asked_wait, is_passing, library_errors, translate

log = logging.getLogger(__name__)

T = TypeVar("T")

_WAITS = (1.0, 2.0, 4.0, 8.0)
_LONGEST_WAIT = 120.0


class HubCalls:
    """Calls to one Hub, for the length of one publication.

    Args:
        endpoint: which Hub, for texts.
        silence: seconds without a byte after which a request has failed.
        timeout: seconds that all calls together may take, from now on.
        sleep: waits that many seconds.
    """

    def __init__(
        self, endpoint: str, *, silence: float, timeout: float, sleep: Callable[[float], None]
    ) -> None:
        self._endpoint = endpoint
        self._silence = silence
        self._timeout = timeout
        self._sleep = sleep
        self._ends = time.monotonic() + timeout

    def once(self, call: Callable[[], T]) -> T:
        """What a call gives.

        Raises:
            HubUnavailable: the time is over; what the call asked for may happen all the same.
            Exception: whatever the call raises.
        """

        def patiently() -> T:
            with _patience(min(self._silence, max(self._remaining(), 0.001))):
                return call()

        self.check()
        try:
            return while_allowed(self.check, patiently, undo=lambda _: None)
        except KeyboardInterrupt:  # its thread must not go on to commit what nobody wants any more
            self._ends = time.monotonic()
            raise

    def again(self, what: str, call: Callable[[], T]) -> T:
        """The same, made again after answers that say "later" and after network errors.

        Args:
            what: the call in words, for texts: "create demo/k".

        Raises:
            KernelHubError: the Hub refused, failed each time, or the time is over.
        """
        for wait in (*_WAITS, None):
            try:
                return self.once(call)
            except library_errors() as error:
                translated = translate(error, what)
                if wait is None or not is_passing(error):
                    raise translated from error
                pause = min(asked_wait(error) or wait, _LONGEST_WAIT)
                log.warning("%s; again in %.0f s", translated.message, pause)
            self.pause(pause, translated)
        raise AssertionError("unreachable")

    def pause(self, seconds: float, failure: KernelHubError) -> None:
        """Wait before a call is made again that failed so.

        Raises:
            HubUnavailable: the time would be over then.
        """
        if seconds >= self._remaining():
            raise self._over(f", and in the end it failed so: {failure.message}") from failure
        self._sleep(seconds)

    def check(self) -> None:
        """Raise HubUnavailable if the time is over."""
        if self._remaining() <= 0:
            raise self._over("")

    def _remaining(self) -> float:
        return self._ends - time.monotonic()

    def _over(self, why: str) -> HubUnavailable:
        return HubUnavailable(
            f"publishing to {self._endpoint} takes longer than the {self._timeout:g} s"
            f" allowed{why}",
            url=self._endpoint,
            hint="run it again: what has arrived is not sent again and nothing is half done;"
            " KERNELHUB_PUBLISH_TIMEOUT (seconds) allows more",
        )


@contextmanager
def _patience(seconds: float) -> Iterator[None]:
    """Give the library's shared session a timeout for the block; it has none of its own."""
    from huggingface_hub.utils import get_session  # type: ignore[attr-defined] # unexported

    session: Any = get_session()
    before = session.timeout
    session.timeout = seconds
    try:
        yield
    finally:
        session.timeout = before
