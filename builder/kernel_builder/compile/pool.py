"""All kernels of a package, compiled for several targets in workers that may die.

An abort of the compiler, a kernel that compiles for ever, a project that exits at import: each is
an outcome of the job that was in flight, and the next job gets a new worker.
"""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .launch import Refusal, Resources
from .targets import Target

START_SECONDS = 120.0
COMPILE_SECONDS = 60.0
CONFIGS = 4
"""Configurations of a kernel that are compiled for each target while one of them fits."""
_WORTH_A_WORKER = 4  # kernels times targets: a worker spends seconds on importing torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is compiled: package `package` in `folder`, of the project at `root`.

    Attributes:
        cache: folder where Triton keeps what it compiled.
        workloads: file of the project's workloads relative to `root`, None if there is none.
    """

    root: Path
    folder: Path
    package: str
    cache: Path
    workloads: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One kernel of the package, see `observe.Kernel`. `configs` has one text a configuration."""

    name: str
    path: str
    line: int
    calls: tuple[str, ...]
    configs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """Kernels of a package; `failures` says which public functions could not be called and why."""

    kernels: tuple[Found, ...]
    failures: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one configuration of one kernel on one target."""

    kernel: Found
    target: Target
    config: int
    result: Resources | Refusal

    @property
    def fits(self) -> bool:
        """It compiled, and asks for no more shared memory than the target has."""
        if isinstance(self.result, Refusal):
            return False
        limit = self.target.shared_memory
        return limit is None or self.result.shared_memory <= limit


class Pool:
    """Workers for one package. Close it, or use it as a context manager.

    Args:
        workers: how many at most; a further one is started where there is enough to do.
        seconds: that one compilation may take.
    """

    def __init__(
        self, subject: Subject, *, workers: int = 2, seconds: float = COMPILE_SECONDS
    ) -> None:
        self._workers = [_Worker(subject, seconds) for _ in range(max(1, workers))]

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

        def work(worker: _Worker) -> None:
            try:
                while True:
                    kernel, target = jobs.get_nowait()
                    done.put(_compile_kernel(worker, kernel, target, configs))
            except queue.Empty:
                return
            except BaseException as error:
                done.put(error)
                raise

        useful = self._workers[: 1 + len(pairs) // _WORTH_A_WORKER]
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
    worker: _Worker, kernel: Found, target: Target, count: int
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


class _Worker:
    """One worker process, started when needed and again after it died. For one thread."""

    def __init__(self, subject: Subject, seconds: float) -> None:
        self._subject = subject
        self._seconds = seconds
        self._abandoned = False
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - see close

    def abandon(self) -> None:
        """From another thread: end the process, and answer every further job with a refusal."""
        self._abandoned = True
        if (process := self._process) is not None:
            process.kill()

    def close(self) -> None:
        """End the process."""
        self._stop()
        self._errors.close()

    def start(self) -> Inventory | Refusal:
        """Start the process and have it import the package."""
        subject = self._subject
        self._errors.truncate(0)
        self._process = subprocess.Popen(
            [sys.executable, "-B", "-c", _BOOT, json.dumps(_import_path())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            encoding="utf-8",
            cwd=subject.root,
        )
        self._lines = queue.SimpleQueue()
        threading.Thread(target=_forward, args=(self._process, self._lines), daemon=True).start()
        answer = self._ask(
            {
                "root": str(subject.root),
                "folder": str(subject.folder),
                "package": subject.package,
                "cache": str(subject.cache),
                "workloads": subject.workloads and str(subject.root / subject.workloads),
                "target": "sm_90",
            },
            START_SECONDS,
        )
        if isinstance(answer, Refusal):
            return answer
        if "failed" in answer:
            self._stop()
            return Refusal(kind="import", reason=answer["failed"])
        kernels = tuple(
            Found(
                name=data["name"],
                path=data["path"],
                line=data["line"],
                calls=tuple(data["calls"]),
                configs=tuple(data["configs"]),
            )
            for data in answer["kernels"]
        )
        return Inventory(kernels=kernels, failures=answer["failures"])

    def compile(self, kernel: Found, config: int, target: Target) -> Resources | Refusal:
        """One job, in a new process if the last one died."""
        if self._abandoned:
            return Refusal(kind="crash", reason="given up")
        if self._process is None:
            started = self.start()
            if isinstance(started, Refusal):
                return started
        job = {"kernel": kernel.name, "config": config, "target": target.arch}
        answer = self._ask(job, self._seconds)
        if isinstance(answer, Refusal):
            return answer
        if "refused" in answer:
            return Refusal(kind="compile", reason=answer["refused"])
        return Resources(**answer)

    def _ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any] | Refusal:
        process = self._process
        assert process is not None and process.stdin is not None  # noqa: S101, PT018 - set by start
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            line = self._lines.get(timeout=seconds)
        except queue.Empty:
            self._stop()
            return Refusal(kind="timeout", reason=f"not done after {seconds:g} s")
        except OSError:  # it died before it could read
            line = ""
        if line:
            answer: dict[str, Any] = json.loads(line)
            return answer
        code = process.wait()
        self._stop()
        return Refusal(kind="crash", reason=f"the compiler died ({_how(code)})\n{self._tail()}")

    def _tail(self) -> str:
        size = self._errors.seek(0, 2)
        self._errors.seek(max(0, size - 2000))
        lines = self._errors.read().decode("utf-8", "replace").strip().splitlines()
        return "\n".join(line[:200] for line in lines[-3:])

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except OSError:  # what could not be written to a dead process
                    continue


# The worker's folder is the project's, where entries of sys.path mean something else.
_BOOT = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from kernel_builder.compile.worker import main
main()
"""


def _import_path() -> list[str]:
    return [str(Path(entry).resolve()) for entry in sys.path]


def _forward(process: subprocess.Popen[str], lines: queue.SimpleQueue[str]) -> None:
    """Hand on what the worker answers; an empty line means that it ended."""
    stream = process.stdout
    assert stream is not None  # noqa: S101 - it was opened as a pipe
    try:
        for line in stream:
            lines.put(line)
    except ValueError:  # closed under our hands by _stop
        return
    lines.put("")


def _how(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"
