"""A process that compiles one package's kernels on request and may die doing so.

`main` reads JSON lines on stdin and answers each with one on the
stream that was stdout; whatever the project or the compiler prints goes to stderr. The first
request names the package, its answer lists the kernels; every other one names a kernel, one of its
configurations and a target.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any, TextIO

from kernel_builder.ops import stand_in_for_ops


def main() -> None:
    """Serve until stdin ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # compilers print, some of them straight to file descriptor 1
    sys.dont_write_bytecode = True
    request = json.loads(sys.stdin.readline())
    os.environ.pop("TRITON_INTERPRET", None)
    os.environ["TRITON_CACHE_DIR"] = request["cache"]
    # Triton 3.9 warns when it is unset, and means this.
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
    observation = _open(request, answers)
    for line in sys.stdin:
        job = json.loads(line)
        _answer(answers, _compile(observation, job))


def _open(request: dict[str, Any], answers: TextIO) -> Any:
    from . import driver, observe

    driver.use(request["target"])
    sys.path.insert(0, request["folder"])
    name = request["package"]
    stand_in_for_ops(name, Path(request["folder"]))
    try:
        package = importlib.import_module(name)
    except Exception as error:  # noqa: BLE001 - the project's own failure is the answer
        _answer(answers, {"failed": f"{type(error).__name__}: {error}"})
        sys.exit(0)
    modules = {
        module_name: module
        for module_name, module in sys.modules.items()
        if module_name == name or module_name.startswith(f"{name}.")
    }
    workloads = request["workloads"]
    observation = observe.Observation(package, modules, workloads and Path(workloads))
    _answer(
        answers,
        {
            "failures": observation.failures,
            "kernels": [
                {
                    "name": kernel.name,
                    "path": observe.relative(kernel.file, request["root"]),
                    "line": kernel.line,
                    "calls": kernel.calls,
                    "configs": [launch.config for launch in kernel.launches],
                }
                for kernel in observation.kernels.values()
            ],
        },
    )
    return observation


def _compile(observation: Any, job: dict[str, Any]) -> dict[str, Any]:
    from . import driver, launch

    kernel = observation.kernels[job["kernel"]]
    observed = kernel.launches[job["config"]]
    driver.use(job["target"])
    try:
        compiled = observation.function(job["kernel"]).run(
            *observed.args, grid=(1,), warmup=True, **observed.kwargs
        )
        found = launch.resources(compiled)
    except Exception as error:  # noqa: BLE001 - whatever a compiler raises is its refusal
        return {"refused": launch.explain(error)}
    return dataclasses.asdict(found)


def _answer(stream: TextIO, data: dict[str, Any]) -> None:
    stream.write(json.dumps(data) + "\n")
    stream.flush()
