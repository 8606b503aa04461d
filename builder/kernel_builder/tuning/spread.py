"""The same work on many things, on all cores where that is sooner done than here."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

_log = logging.getLogger(__name__)
_T = TypeVar("_T")
_R = TypeVar("_R")
_WORTH = 1.5  # seconds of work left from which new processes, which import this package, pay


def usable_cores() -> int:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def spread(work: Callable[[_T], _R], items: Sequence[_T]) -> list[_R]:
    """`[work(item) for item in items]`, on several cores if the first ones took long.

    Args:
        work: can be pickled, as can items and results; depends on nothing but its argument.
    """
    begun = time.monotonic()
    results: list[_R] = []
    for number, item in enumerate(items):
        left = (time.monotonic() - begun) / max(1, number) * (len(items) - number)
        if number and left > _WORTH and usable_cores() > 1:
            return results + _in_processes(work, items[number:])
        results.append(work(item))
    return results


def _in_processes(work: Callable[[_T], _R], items: Sequence[_T]) -> list[_R]:
    # Spawned: this process may have threads, and a driver that no fork survives.
    context = multiprocessing.get_context("spawn")
    count = min(usable_cores(), len(items))
    pool = ProcessPoolExecutor(count, context, initializer=_leave_interrupts)
    try:
        return list(pool.map(work, items))
    except BrokenProcessPool:  # such as a program that does its work on being imported
        _log.info("no further processes can be started; the work is done in this one")
        return [work(item) for item in items]
    finally:
        pool.shutdown(cancel_futures=True)


def _leave_interrupts() -> None:
    """Ctrl-C is this process's asker's to handle."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
