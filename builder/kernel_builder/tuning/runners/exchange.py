"""Requests to a worker process and its answers, and a new process after one was lost."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kernel_builder.tuning.matrix import config_key
from kernel_builder.tuning.runners.child import Child, epitaph
from kernelhub.errors import TuningError

MODULE = "kernel_builder.tuning.runners.worker"


class Lost(Exception):
    """The worker is gone or was given up.

    Attributes:
        reason: "fault" or "timeout".
        suspects: keys of the configurations that had begun and not ended.
        explained: whether the outcome that it sent last says whose fault it was.
    """

    def __init__(
        self, reason: str, detail: str, suspects: Sequence[str] = (), *, explained: bool = False
    ) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail
        self.suspects = list(suspects)
        self.explained = explained


class Worker:
    """A worker process, started when it is needed and again after it was lost.

    Args:
        first: the request that every new process gets, see `worker`.
        environment: variables of the process, None for this process's own.
        limit: seconds for starting.
    """

    def __init__(
        self, first: Mapping[str, Any], environment: Mapping[str, str] | None, limit: float
    ) -> None:
        self._first = first
        self._environment = environment
        self._limit = limit
        self._child: Child | None = None
        self._greeted = False  # whether the process that lives has taken in its first request
        self.started = 0
        self.waited = 0.0

    @property
    def alive(self) -> bool:
        """Whether there is a process, as far as is known."""
        return self._child is not None

    def start(self) -> None:
        """Start the process, if there is none, without waiting for it."""
        if self._child is None:
            self._child = Child(self._environment, MODULE)
            self._child.try_send(self._first)
            self._greeted = False
            self.started += 1

    def ask(self, request: Mapping[str, Any], limit: float) -> Iterator[dict[str, Any]]:
        """Send one request and yield its answers.

        Args:
            limit: seconds without any answer after which the process counts as hanging.

        Raises:
            Lost: the process died or hung; it is gone.
            TuningError: it says that it cannot go on, or it does not start.
        """
        child = self._ready()
        child.try_send(request)
        yield from self._answers(child, limit)

    def interrupt(self) -> None:
        """From another thread: end the process; whoever waits for it loses it."""
        child = self._child
        if child is not None:
            child.process.kill()

    def close(self) -> None:
        """End the process. Safe to call twice."""
        if self._child is not None:
            self._child.kill()
            self._child = None

    def _ready(self) -> Child:
        self.start()
        child = self._child
        assert child is not None  # noqa: S101 - just started
        if not self._greeted:
            begin = time.monotonic()
            try:
                for _ in self._answers(child, self._limit):
                    pass
            except Lost as lost:
                raise TuningError(f"a measuring process could not start: {lost.detail}") from lost
            self.waited += time.monotonic() - begin
            self._greeted = True
        return child

    def _answers(self, child: Child, limit: float) -> Iterator[dict[str, Any]]:
        begun: dict[str, None] = {}
        ended = False
        try:
            while not ended:
                answer = child.answer(limit)
                if answer is None:
                    raise Lost("fault", epitaph(child), list(begun))
                if "error" in answer:
                    raise TuningError(answer["error"], hint=answer["hint"])
                ended = "end" in answer
                if "begin" in answer:
                    begun[config_key(answer["begin"])] = None
                elif "ended" in answer:
                    begun.pop(config_key(answer["ended"]), None)
                elif not ended:
                    if "outcome" in answer:
                        begun.pop(config_key(answer["outcome"]["config"]), None)
                    yield answer
                if answer.get("last"):
                    raise Lost("fault", "the device was left unusable", explained=True)
        except queue.Empty:
            raise Lost("timeout", f"no answer for {limit:g} s", list(begun)) from None
        finally:
            if not ended:  # whatever it is doing, its further answers must not reach anyone
                self.close()
