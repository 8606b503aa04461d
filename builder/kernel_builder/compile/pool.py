"""All kernels of a package, compiled for several targets in workers that may die.

An abort of the compiler, a kernel that compiles for ever, a project that exits at import: each is
an outcome of the job that was in flight, and the next job gets a new worker.
"""

from __future__ import annotations

import queue
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from .launch import Refusal
from .model import Found, Inventory, Outcome, Subject
from .process import Worker
from .targets import Target

__all__ = ["CONFIGS", "Found", "Inventory", "Outcome", "Pool", "Subject", "spread"]

COMPILE_SECONDS = 60.0
CONFIGS = 4
"""Configurations of a kernel that are compiled for each target while one of them fits."""
_WORTH_A_WORKER = 12  # compilations, of 0.1 to 1 s: a worker spends 3 s on importing torch


class Pool:
    """Workers for one package. Close it, or use it as a context manager.

    Args:
        workers: how many at most; a further one is started where there is enough to do.
        seconds: that one compilation may take.
    """

    def __init__(
        self, subject: Subject, *, workers: int = 2, seconds: float = COMPILE_SECONDS
    ) -> None:
        self._workers = [Worker(subject, seconds) for _ in range(max(1, workers))]

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the workers."""
        for worker in self._workers:
            worker.close()

    def take_stock(self) -> Inventory | Refusal:
        """Import the package in a worker and see what it launches."""
        return self._workers[0].start()

    def compile_all(
        self, kernels: Sequence[Found], targets: Sequence[Target], *, configs: int = CONFIGS
    ) -> Iterator[tuple[Outcome, ...]]:
        """The outcomes of each kernel on each target, as they come.

        Of a kernel with many configurations, `configs` are compiled, the first, the last and some
        in between; the others too, one by one, as long as none has fitted.
        """
        jobs: queue.SimpleQueue[tuple[Found, Target]] = queue.SimpleQueue()
        pairs = [(kernel, target) for kernel in kernels if kernel.configs for target in targets]
        for pair in pairs:
            jobs.put(pair)
        done: queue.SimpleQueue[tuple[Outcome, ...] | BaseException] = queue.SimpleQueue()

        def work(worker: Worker) -> None:
            try:
                while True:
                    kernel, target = jobs.get_nowait()
                    done.put(_compile_kernel(worker, kernel, target, configs))
            except queue.Empty:
                return
            except BaseException as error:
                done.put(error)
                raise

        compilations = sum(min(len(kernel.configs), configs) for kernel, _ in pairs)
        useful = self._workers[: 1 + compilations // _WORTH_A_WORKER]
        with ThreadPoolExecutor(max_workers=len(useful)) as threads:
            for worker in useful:
                threads.submit(work, worker)
            left = len(pairs)
            try:
                while left:
                    outcome = done.get()
                    left -= 1
                    if isinstance(outcome, BaseException):
                        raise outcome
                    yield outcome
            finally:
                if left:  # interrupted, or nobody asks any more: let no compilation finish
                    for worker in useful:
                        worker.abandon()


def _compile_kernel(
    worker: Worker, kernel: Found, target: Target, count: int
) -> tuple[Outcome, ...]:
    chosen = spread(len(kernel.configs), count)
    rest = [i for i in range(len(kernel.configs)) if i not in chosen]
    outcomes = [
        Outcome(kernel=kernel, target=target, config=i, result=worker.compile(kernel, i, target))
        for i in chosen
    ]
    while rest and not any(outcome.fits for outcome in outcomes):
        i = rest.pop(0)
        result = worker.compile(kernel, i, target)
        outcomes.append(Outcome(kernel=kernel, target=target, config=i, result=result))
    return tuple(outcomes)


def spread(total: int, count: int) -> list[int]:
    """`count` of `total` indices: the first, the last, and evenly between."""
    if total <= count:
        return list(range(total))
    if count == 1:
        return [0]
    return sorted({round(i * (total - 1) / (count - 1)) for i in range(count)})
