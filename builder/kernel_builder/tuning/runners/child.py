"""One live worker process and the lines that it sends."""

from __future__ import annotations

import json
import logging
import queue
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping
from typing import Any

_log = logging.getLogger(__name__)
_TAIL = 12  # lines of a dead worker's standard error that are worth showing


class Child:
    """One live process and the lines that it sends.

    Args:
        environment: its variables, None for this process's own.
        module: its program.
    """

    def __init__(self, environment: Mapping[str, str] | None, module: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
            env=None if environment is None else dict(environment),
        )
        self.tail: deque[str] = deque(maxlen=_TAIL)
        self._answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._listen, daemon=True),
            threading.Thread(target=self._overhear, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None  # noqa: S101 - asked for above
        for line in self.process.stdout:
            self._answers.put(line)
        self._answers.put(None)

    def _overhear(self) -> None:
        assert self.process.stderr is not None  # noqa: S101 - asked for above
        for line in self.process.stderr:
            self.tail.append(line.rstrip())

    def send(self, request: Mapping[str, Any]) -> None:
        """Raises BrokenPipeError if the process is gone."""
        assert self.process.stdin is not None  # noqa: S101 - asked for above
        self.process.stdin.write(json.dumps(request, separators=(",", ":")) + "\n")
        self.process.stdin.flush()

    def try_send(self, request: Mapping[str, Any]) -> None:
        """Send, unless the process is gone, which its missing answer will tell."""
        try:
            self.send(request)
        except (BrokenPipeError, ValueError):
            _log.debug("process %d was gone before a request", self.process.pid)

    def answer(self, timeout: float | None) -> dict[str, Any] | None:
        """The next answer, None if the process ended. Raises queue.Empty after the timeout."""
        line = self._answers.get(timeout=timeout)
        if line is None:
            return None
        answer = json.loads(line)
        return answer if isinstance(answer, dict) else None

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for thread in self._threads:
            thread.join(timeout=5)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:  # what was still to be written has no reader any more
                    _log.debug("worker %d was gone before its last request", self.process.pid)


def epitaph(worker: Child) -> str:
    """How a worker died, in its own last words."""
    try:
        code = worker.process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        return "the worker closed its output and did not end"
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    last = "; ".join(line for line in worker.tail if line)[-400:]
    return f"the worker died ({how}){': ' + last if last else ''}"
