"""Something that may hang, done by a thread that can be left.

The HTTP library bounds the silence of a connection. It bounds neither a name server that does not
answer nor headers that come a byte at a time.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")
_LOOK = 0.1


def while_allowed(check: Callable[[], None], do: Callable[[], T], undo: Callable[[T], object]) -> T:
    """What `do` gives, as long as `check` allows to wait for it.

    Args:
        check: raises once nobody may wait any longer.
        do: what may hang. It runs in a thread that ends when it does, and that keeps no process
            from ending.
        undo: called with its result if that comes when nobody waits any more.

    Raises:
        BaseException: whatever `check` or `do` raises.
    """
    done = threading.Event()
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(do())
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            future.set_exception(error)
        done.set()

    work = contextvars.copy_context().run
    threading.Thread(target=work, args=(run,), daemon=True, name="kernelhub-open").start()
    came = False
    try:
        while not (came := done.wait(_LOOK)):
            check()
    finally:
        if not came:
            future.add_done_callback(lambda late: late.exception() or undo(late.result()))
    return future.result()
