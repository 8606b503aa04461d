"""What the first launch of a process would wait for, done in threads while it imports.

Triton hashes its own compiler before it compiles, and with an empty cache builds its part of the
driver with the system's C compiler; CUDA makes a context at the first allocation. Each takes some
tenths of a second and leaves the interpreter to others meanwhile.
"""

from __future__ import annotations

import importlib.util
import logging
import threading
from collections.abc import Callable

_log = logging.getLogger(__name__)


class Ahead:
    """Threads that have begun; `join` waits for all of them."""

    def __init__(self) -> None:
        self._threads: list[threading.Thread] = []

    def start(self, work: Callable[[], object]) -> None:
        """Begin. What fails here fails again where it is needed, and is told there."""

        def run() -> None:
            try:
                work()
            except Exception as error:  # noqa: BLE001 - see above
                _log.debug("%s: %s", getattr(work, "__name__", work), error)

        self._threads.append(threading.Thread(target=run, daemon=True))
        self._threads[-1].start()

    def join(self) -> None:
        """Wait for what has begun."""
        for thread in self._threads:
            thread.join()


def hash_compiler(ahead: Ahead) -> None:
    """Have Triton hash its compiler, if it is installed. It is imported here: two threads that
    import what needs each other may fail."""
    if importlib.util.find_spec("triton") is None:
        return
    from triton.runtime import cache

    ahead.start(cache.triton_key)
