"""The same work on many things, on all cores where that is sooner done than here.

    python -m kernel_builder.tuning.spread

does a share of it: (work, items) pickled on standard input, the results pickled on standard output.
Not `multiprocessing`: that runs the asker's program once more in every process that it spawns, and
this process may hold threads and a driver that no fork survives.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
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
    count = min(usable_cores(), len(items))
    shares = [items[start::count] for start in range(count)]
    results: dict[int, _R] = {}
    started = [_start() for _ in shares]
    try:
        for process, share in zip(started, shares, strict=True):
            _give(process, (work, share))
        for start, (process, share) in enumerate(zip(started, shares, strict=True)):
            results |= zip(
                range(start, len(items), count), _take(process, work, share), strict=True
            )
    finally:
        for process in started:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None  # noqa: S101 - asked for in `_start`
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
    return [results[index] for index in range(len(items))]


def _start() -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", __name__]
    # A session of its own: Ctrl-C is for this process, which then ends the others.
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )


def _give(process: subprocess.Popen[bytes], task: object) -> None:
    assert process.stdin is not None  # noqa: S101 - asked for in `_start`
    try:
        with process.stdin as pipe:
            pickle.dump(task, pipe)
    except BrokenPipeError:  # it died; there will be no results
        _log.debug("process %d was gone before its work", process.pid)


def _take(
    process: subprocess.Popen[bytes], work: Callable[[_T], _R], share: Sequence[_T]
) -> list[_R]:
    assert process.stdout is not None  # noqa: S101 - asked for in `_start`
    answer = process.stdout.read()
    if process.wait() == 0:
        found: list[_R] = pickle.loads(answer)  # noqa: S301 - of this program's own process
        return found
    _log.info("process %d ended with %d; its share is done here", process.pid, process.returncode)
    return [work(item) for item in share]


def main() -> None:
    """Entry point of a process."""
    work, items = pickle.load(sys.stdin.buffer)  # noqa: S301 - of this program's own process
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what the work prints is no answer
    pickle.dump([work(item) for item in items], answers)
    answers.close()


if __name__ == "__main__":
    main()
