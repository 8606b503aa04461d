"""Children of a process that share what it has imported, and may crash or hang without harm to it.

Forking costs some milliseconds where a new process would import torch and the package for seconds.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import IO, Any, NoReturn

from kernel_builder.tuning.runner import Outcome

Job = Mapping[str, Any]
_TAIL = 400  # characters of a dead compiler's last words


@dataclass(slots=True, kw_only=True)
class _Child:
    """A process that works on one job after the other."""

    pid: int
    requests: int
    errors: IO[bytes]
    job: Job | None = None
    deadline: float = 0.0
    answer: bytes = b""
    late: bool = False


@dataclass(slots=True)
class Forks:
    """Children that work on one job each at a time.

    Args:
        work: done in a child; its result is JSON.
        answer: called here with the job and what came out.
        seconds: that one job may take.
        selector: told which pipes to watch; `news` is to be called for those that are readable.
    """

    work: Callable[[Job], Any]
    answer: Callable[[Job, Any], None]
    seconds: float
    selector: selectors.BaseSelector
    _children: dict[int, _Child] = field(default_factory=dict)  # by the pipe that it answers on

    def start(self, job: Job) -> None:
        """Begin a job."""
        idle = (p for p, c in self._children.items() if c.job is None and not c.late)
        pipe = next(idle, None) or self._fork()
        child = self._children[pipe]
        child.job, child.answer = job, b""
        child.deadline = time.monotonic() + self.seconds
        with contextlib.suppress(BrokenPipeError):  # it died idle: its pipe brings the news
            os.write(child.requests, json.dumps(job).encode() + b"\n")

    def news(self, pipe: int) -> None:
        """Take what a child says, or that it has ended."""
        child = self._children[pipe]
        data = os.read(pipe, 1 << 16)
        child.answer += data
        if data:
            if child.answer.endswith(b"\n"):
                self._finish(child, json.loads(child.answer))
            return
        _, status = os.waitpid(child.pid, 0)
        self._finish(child, _verdict(child, status, self.seconds))
        del self._children[pipe]
        # Before the pipe is closed: siblings have inherited it, so closing alone would not end it.
        self.selector.unregister(pipe)
        os.close(pipe)
        os.close(child.requests)
        child.errors.close()

    def kill_late(self) -> None:
        """End children that have used up their time; their pipes then bring the news."""
        for child in self._children.values():
            if child.job is not None and time.monotonic() > child.deadline and not child.late:
                child.late = True
                _kill(child.pid)

    def kill_all(self) -> None:
        """End all children."""
        for child in self._children.values():
            _kill(child.pid)

    def _finish(self, child: _Child, outcome: Any) -> None:
        job, child.job = child.job, None
        if job is not None:
            self.answer(job, outcome)

    def _fork(self) -> int:
        (read, answers), (jobs, requests) = os.pipe(), os.pipe()
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `news`
        pid = os.fork()
        if pid == 0:
            # A sibling that the server leaves behind must see its requests end.
            for sibling in (
                *self._children.values(),
                _Child(pid=0, requests=requests, errors=errors),
            ):
                os.close(sibling.requests)
            _be_child(self.work, jobs, answers, errors.fileno())
        os.close(answers)
        os.close(jobs)
        self._children[read] = _Child(pid=pid, requests=requests, errors=errors)
        self.selector.register(read, selectors.EVENT_READ)
        return read


def _be_child(work: Callable[[Job], Any], jobs: int, answers: int, errors: int) -> NoReturn:
    """What happens after the fork. Never returns: this process must not go on as the server."""
    code = 1
    try:
        os.setpgid(0, 0)  # assemblers that it starts end with it
        os.dup2(errors, 1)
        os.dup2(errors, 2)
        with os.fdopen(jobs) as lines, os.fdopen(answers, "w") as results:
            for line in lines:
                os.lseek(errors, 0, os.SEEK_SET)
                os.ftruncate(errors, 0)  # its last words are about the job at hand
                results.write(json.dumps(work(json.loads(line))) + "\n")
                results.flush()
        code = 0
    finally:
        os._exit(code)


def _verdict(child: _Child, status: int, seconds: float) -> Any:
    """What the child said, or what its death says. None: nothing for certain."""
    config, code = (child.job or {}).get("config", {}), os.waitstatus_to_exitcode(status)
    if child.late:
        detail = f"not compiled after {seconds:g} s"
        return asdict(Outcome(config=config, reason="timeout", detail=detail))
    if code in (-signal.SIGABRT, -signal.SIGSEGV, -signal.SIGBUS, -signal.SIGILL, -signal.SIGFPE):
        child.errors.seek(0)
        words = child.errors.read().decode("utf-8", "replace").strip()[-_TAIL:]
        detail = f"the compiler died (signal {-code}): {words}"
        return asdict(Outcome(config=config, reason="compile_error", detail=detail))
    # Killed for want of memory, or by an error that is not the compiler's: try it where it runs.
    return None


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):  # it may not have led its group yet
        os.kill(pid, signal.SIGKILL)
