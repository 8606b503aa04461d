"""One worker process, seen from the side that asks. The other side is `worker`."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from .launch import Refusal, Resources
from .model import Found, Inventory, Subject
from .targets import Target

START_SECONDS = 120.0


class Worker:
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
