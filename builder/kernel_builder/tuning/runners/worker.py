"""The program of a worker process: JSON lines in, JSON lines out, one core.

    python -m kernel_builder.tuning.runners.worker

Requests, one line each: first {"core": "device" | "model", "arguments": {...}}, then
{"do": "station" | "sources" | "collect" | "counts" | "check" | "measure", ...}.
Answers: {"begin": config}, {"ended": config}, {"outcome": {...}}, {"station": {...}},
{"sources": {...}}, {"seen": {...}}, {"found": {...}}, {"counts": {...}},
{"error": text, "hint": text}; {"end": true} ends each. After an outcome with "last": true the
process ends: its device cannot be used any longer. The answers have a descriptor of their own;
what kernels print goes to standard error. The process ends when its parent does, so that no device
stays occupied by nobody.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
import time
from dataclasses import asdict
from typing import Any, TextIO

from kernel_builder.tuning.runner import Outcome, Task
from kernel_builder.tuning.runners.core import Core, Poisoned
from kernelhub.errors import KernelHubError
from kernelhub.formats.tree import Config

CORES = {
    "tpu-compiler": ("kernel_builder.tuning.runners.tpu_compiler", "TpuCompilerCore"),
    "jax": ("kernel_builder.tuning.runners.jax_device", "JaxDeviceCore"),
    "device": ("kernel_builder.tuning.runners.device", "DeviceCore"),
    "model": ("kernel_builder.tuning.runners.model", "ModelCore"),
}


class _Answers:
    """Writes lines, from any thread."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._lock = threading.Lock()

    def send(self, answer: dict[str, Any]) -> None:
        with self._lock:
            self._file.write(json.dumps(answer, separators=(",", ":")) + "\n")
            self._file.flush()

    def begin(self, config: Config) -> None:
        self.send({"begin": dict(config)})

    def end(self, config: Config) -> None:
        self.send({"ended": dict(config)})

    def outcome(self, outcome: Outcome, *, last: bool = False) -> None:
        self.send({"outcome": asdict(outcome), "last": last})


def serve(requests: TextIO, answers: _Answers) -> None:
    """Answer requests until there are none."""
    first = json.loads(requests.readline())
    module, name = CORES[first["core"]]
    try:
        core: Core = getattr(importlib.import_module(module), name)(**first["arguments"])
        answers.send({"end": True})
        for line in requests:
            _answer(core, json.loads(line), answers)
            answers.send({"end": True})
    except Poisoned as poisoned:
        answers.outcome(poisoned.outcome, last=True)
    except KernelHubError as error:
        answers.send({"error": error.message, "hint": error.hint})


def _answer(core: Core, request: dict[str, Any], answers: _Answers) -> None:
    if request["do"] == "station":
        answers.send({"station": asdict(core.station())})
        return
    if request["do"] == "collect":
        for found in core.collect(lambda seen: answers.send({"seen": asdict(seen)})):
            answers.send({"found": asdict(found)})
        return
    if request["do"] == "sources":
        answers.send({"sources": core.sources()})
        return
    if request["do"] == "counts":
        answers.send({"counts": core.counts()})
        return
    task, configs = Task(**request["task"]), request["configs"]
    if request["do"] == "check":
        base, serial = request["base"], request["serial"]
        for outcome in core.check(task, configs, base, answers, serial=serial):
            answers.outcome(outcome)
    else:
        for outcome in core.measure(task, configs, request["rounds"], answers):
            answers.outcome(outcome)


def _end_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def main() -> None:
    """Entry point of the worker."""
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    # Threads that compile must not keep the one that measures waiting for the interpreter.
    sys.setswitchinterval(1e-4)
    own = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    serve(sys.stdin, _Answers(own))
    own.flush()
    # Background compilations must not hold the process, nor may a broken device's destructors.
    os._exit(0)


if __name__ == "__main__":
    main()
