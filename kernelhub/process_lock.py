"""Locks between processes, waited for without hanging with whoever hangs. A leaf.

Many processes of a node start together, do the same steps and need a lock for each. One of them
leads: it holds the lock while the others look, cheaply, whether what it works for is there.
"""

from __future__ import annotations

import contextlib
import logging
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import filelock

logger = logging.getLogger(__name__)

_PATIENCE = 30.0
_PATIENCE_AGAIN = 0.2
_POLL = 0.5
_LOOK = 0.05
_LOOK_AGAIN = 0.1  # of the time waited so far: a download of minutes is looked at seldom


class Hung(Exception):
    """A lock was kept for too long."""


class Locks:
    """The locks in one folder, and how this process has fared with them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._hung = False  # one was waited for in vain: no other is waited for as long
        self._follows = False  # another process did what one was waited for

    @contextlib.contextmanager
    def hold(
        self,
        name: str,
        wait: float,
        progress: Callable[[], object] | None = None,
        *,
        until: Callable[[], object] | None = None,
    ) -> Iterator[bool]:
        """Hold a lock between processes for the block.

        Args:
            name: what is locked.
            wait: seconds to wait for it.
            progress: how far its holder is; waiting ends early where this does not change.
            until: whether what its holder works for is there, so that many who wait need not take
                the lock one after the other. It is asked often, and has to be cheap.

        Yields:
            Whether it is held. It is not where `until` says so, where the file system has no locks
            or cannot be written, and where the holder kept it too long: then go on without, in
            private files; a holder that hangs must not stop everybody else.
        """
        path = self._folder / f"{name}.lock"
        with contextlib.ExitStack() as stack:
            wait = min(wait, _PATIENCE_AGAIN) if self._hung else max(wait, 0.0)
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
                held = not (until and until()) and self._enter(path, wait, progress, until, stack)
            except Hung:
                self._hung, held = True, False
            except (OSError, NotImplementedError) as error:
                logger.debug("no lock at %s: %s", path, error)
                held = False
            yield held

    def _enter(
        self,
        path: Path,
        wait: float,
        progress: Callable[[], object] | None,
        until: Callable[[], object] | None,
        stack: contextlib.ExitStack,
    ) -> bool:
        """Enter the lock at `path` into `stack`; False if what it was for came first.

        Who has followed another process so far lets it go first: that one is about to do the next
        step too, and has what every process that leads must make anew, a connection to the Hub.

        Raises:
            Hung: it takes too long, or its holder does not get on.
        """
        began = looked = time.monotonic()
        if self._follows and until is not None and _comes(until, min(_POLL, wait), began):
            return False
        lock = _lock(path)
        wait = min(wait, 2 * _PATIENCE) if progress is None else wait
        patience = wait if progress is None else min(_PATIENCE, wait / 2)
        before = None
        while not _entered(lock, stack):
            if _comes(until, min(_POLL, wait), began):
                self._follows = True
                return False
            now = time.monotonic()
            if before is None and progress is not None:
                before = progress()
            if now - looked >= patience or now - began >= wait:
                reached = progress() if progress is not None else None
                if reached == before or now - began >= wait:
                    waited = now - began
                    logger.warning("%s: held for %.0f s by another process; going on", path, waited)
                    raise Hung
                before, looked = reached, now
        self._follows = False
        return True


def _comes(until: Callable[[], object] | None, seconds: float, began: float) -> bool:
    """Whether that comes within a time, waited for since `began`.

    Looking is cheap, and trying a lock is not.
    """
    ends = time.monotonic() + seconds
    while (left := ends - (now := time.monotonic())) > 0:
        if until is not None and until():
            return True
        pause = max(_LOOK, _LOOK_AGAIN * (now - began))
        spread = random.uniform(0.5, 1.0)  # noqa: S311 - of those who wait
        time.sleep(min(spread * pause, left))
        if until is None:
            return False
    return False


def _lock(path: Path) -> filelock.BaseFileLock:
    """The lock at `path`; who may write beside it may hold it, whoever made it."""
    import filelock  # what is on this disk is loaded without a lock

    mode = 0o644 | path.parent.stat().st_mode & 0o022
    return filelock.FileLock(path, blocking=False, mode=mode)


def _entered(lock: filelock.BaseFileLock, stack: contextlib.ExitStack) -> bool:
    """Enter the lock if it is free."""
    import filelock

    try:
        stack.enter_context(lock)
    except filelock.Timeout:
        return False
    return True
