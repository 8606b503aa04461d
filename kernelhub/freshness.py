"""How new what a Hub said to another process has to be, to be as good as an answer of our own."""

from __future__ import annotations

import os
import time
from pathlib import Path

_FRESH_AT_MOST = 60.0
_CLOCK_SKEW = 2.0
_IMPORTED = time.time()
_asked_here: set[tuple[Path, str]] = set()


def fresh_since(folder: Path, key: str) -> float:
    """From when on an answer to another process is as good as one of our own.

    The first time, since this process began (and a minute ago at most); then since now.
    """
    now = time.time()
    if (folder, key) in _asked_here:
        return now
    _asked_here.add((folder, key))
    return max(_process_started(), now - _FRESH_AT_MOST)


def is_fresh(asked: float, since: float) -> bool:
    """Whether an answer came then or later; a time in the future is not believed."""
    return since <= asked <= time.time() + _CLOCK_SKEW


def _process_started() -> float:
    """When this process began, in seconds since 1970; else when this module was imported."""
    try:
        after_name = Path("/proc/self/stat").read_text("ascii", "replace").rpartition(")")[2]
        ticks = int(after_name.split()[19])
        uptime = time.clock_gettime(time.CLOCK_BOOTTIME)
        return time.time() - (uptime - ticks / os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError, IndexError, AttributeError):
        return _IMPORTED
