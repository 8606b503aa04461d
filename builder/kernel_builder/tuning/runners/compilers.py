"""Compiling ahead on the host's cores, in processes of their own, into Triton's cache.

The measuring process then finds every kernel compiled. It would compile as well, but Triton's front
end holds the interpreter's lock: one core's worth of work, taken from the thread that measures.
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from kernel_builder.tuning.matrix import config_key
from kernel_builder.tuning.runner import Found, Outcome, Task
from kernel_builder.tuning.runners.child import Child
from kernel_builder.tuning.site import Site
from kernelhub.formats.tree import Config

_log = logging.getLogger(__name__)
MODULE = "kernel_builder.tuning.runners.compile_server"
_Key = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    key: _Key
    request: Mapping[str, Any]
    done: Future[Outcome | None] = field(default_factory=Future)


def can_fork() -> bool:
    """Whether this system has what `Compilers` are made of."""
    return hasattr(os, "fork")


class Compilers:
    """Compiles launches that were found, some at a time. May be used from several threads.

    Args:
        site: where the code is.
        count: how many compile at once.
        seconds: that one compilation may take.
        environment: variables of the processes, None for this process's own.
    """

    def __init__(
        self,
        site: Site,
        count: int,
        *,
        seconds: float = 120.0,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._site = site
        self._count = count
        self._seconds = seconds
        self._environment = environment
        self._child: Child | None = None
        self._lock = threading.Lock()  # guards all that follows
        self._open = False  # it has imported the package and lives
        self._over = False
        self._numbers = itertools.count()
        self._recipes: dict[str, Mapping[str, Any]] = {}  # by point
        self._jobs: dict[_Key, _Job] = {}  # all that were ever asked for
        self._waiting: OrderedDict[_Key, _Job] = OrderedDict()
        self._flying: dict[int, _Job] = {}

    def start(self) -> None:
        """Start importing the package; returns at once. Does nothing a second time."""
        if self._child is None:
            self._child = Child(self._environment, MODULE)
            self._child.try_send({"site": self._site.to_json(), "seconds": self._seconds})
            threading.Thread(target=self._listen, args=(self._child,), daemon=True).start()

    def learn(self, found: Found) -> None:
        """Take note of how a launch is made again; only such can be compiled here."""
        if found.recipe is not None:
            with self._lock:
                self._recipes[found.point] = found.recipe

    def submit(self, task: Task, config: Config, arch: str) -> Future[Outcome | None]:
        """Compile a configuration of a task, once. What is submitted last, or again, comes first.

        Args:
            arch: "sm_90", of the device that will run it.

        Returns:
            The outcome if the compiler refuses or crashes. None if it is in the cache, or if the
            device's process has to see for itself.
        """
        key = (task.point, config_key(config))
        with self._lock:
            job = self._jobs.get(key)
            if job is None:
                job = self._add(key, task, config, arch)
            if key in self._waiting:
                self._waiting.move_to_end(key, last=False)
            self._send()
        return job.done

    def close(self) -> None:
        """End the processes. Safe to call twice; what is under way comes to None."""
        if self._child is not None:
            self._child.kill()
        self._end()

    def _add(self, key: _Key, task: Task, config: Config, arch: str) -> _Job:
        request = {
            "kernel": task.kernel,
            "recipe": self._recipes.get(task.point),
            "config": dict(config),
            "arch": arch,
        }
        job = self._jobs[key] = _Job(key=key, request=request)
        if self._over or self._child is None or request["recipe"] is None:
            job.done.set_result(None)
        else:
            self._waiting[key] = job
        return job

    def _send(self) -> None:
        """Give out what there are free hands for."""
        assert not self._waiting or self._child is not None  # noqa: S101 - see `_add`
        while self._open and self._waiting and len(self._flying) < self._count:
            _, job = self._waiting.popitem(last=False)
            number = next(self._numbers)
            self._flying[number] = job
            if self._child is not None:
                self._child.try_send({"job": number, **job.request})

    def _listen(self, child: Child) -> None:
        while (answer := child.answer(None)) is not None:
            with self._lock:
                job = self._flying.pop(answer["job"]) if "job" in answer else None
                self._open = True
                self._send()
            if job is not None:
                job.done.set_result(_outcome(answer["outcome"]))
        self._end()

    def _end(self) -> None:
        with self._lock:
            if self._child is not None and not self._over:
                _log.debug("compiling ahead ended: %s", "; ".join(self._child.tail))
            self._over, self._open = True, False
            left = [*self._waiting.values(), *self._flying.values()]
            self._waiting.clear()
            self._flying.clear()
        for job in left:
            job.done.set_result(None)


def _outcome(answer: Mapping[str, Any] | None) -> Outcome | None:
    return None if answer is None else Outcome(**{**answer, "samples": ()})
