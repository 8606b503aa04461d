"""Locks between processes, waited for without hanging with whoever hangs. A leaf."""

from __future__ import annotations

import contextlib
import logging
import random
import time
from collections.abc import Callable
from pathlib import Path

logger = logging.getLogger(__name__)

_PATIENCE = 30.0
_POLL = 0.5
_LOOK = 0.05


class Hung(Exception):
    """A lock was kept for too long."""


def enter(
    path: Path,
    wait: float,
    progress: Callable[[], object] | None,
    until: Callable[[], object] | None,
    stack: contextlib.ExitStack,
) -> bool:
    """Enter the lock at `path` into `stack`; False if what it was for came first.

    Raises:
        Hung: it takes too long, or its holder does not get on.
    """
    began = looked = time.monotonic()
    wait = min(wait, 2 * _PATIENCE) if progress is None else wait
    patience = wait if progress is None else min(_PATIENCE, wait / 2)
    before = progress() if progress is not None else None
    while not _entered(path, stack):
        if _comes(until, min(_POLL, wait)):
            return False
        now = time.monotonic()
        if now - looked >= patience or now - began >= wait:
            reached = progress() if progress is not None else None
            if reached == before or now - began >= wait:
                waited = now - began
                logger.warning("%s: held for %.0f s by another process; going on", path, waited)
                raise Hung
            before, looked = reached, now
    return True


def _comes(until: Callable[[], object] | None, seconds: float) -> bool:
    """Whether that comes within a time. Looking is cheap, and trying a lock is not."""
    ends = time.monotonic() + seconds
    while (left := ends - time.monotonic()) > 0:
        if until is not None and until():
            return True
        pause = random.uniform(0.5, 1.0) * _LOOK  # noqa: S311 - spreads those who wait
        time.sleep(min(pause, left))
        if until is None:
            return False
    return False


def _entered(path: Path, stack: contextlib.ExitStack) -> bool:
    """Enter the lock if it is free; who may write beside it may hold it, whoever made it."""
    import filelock  # what is on this disk is loaded without a lock

    mode = 0o644 | path.parent.stat().st_mode & 0o022
    try:
        stack.enter_context(filelock.FileLock(path, blocking=False, mode=mode))
    except filelock.Timeout:
        return False
    return True
