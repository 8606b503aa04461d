"""The program that fills Triton's cache: JSON lines in, JSON lines out, forked children that work.

    python -m kernel_builder.tuning.runners.compile_server

The first request is {"site": {...}, "seconds": limit of one job}. The package is imported once and
{"ready": true} is answered. Every further request

    {"job": number, "kernel": dotted name, "recipe": {...}, "config": {...}, "arch": "sm_90"}

is compiled in a forked child, which may crash or hang and is then replaced, and answered by
{"job": number, "outcome": {...}}, the outcome null unless the compiler is known to refuse. It is up
to the asker how many are under way at once. The program ends when its standard input does.
No child touches a device: each compiles for an architecture that it is told. Nor does the program:
a package that asks for the GPU when it is imported would leave a driver that no fork survives, so
the GPUs are hidden from it.
"""

from __future__ import annotations

import gc
import json
import os
import selectors
import sys
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

from kernel_builder.tuning.runners.ahead import Ahead, hash_compiler
from kernel_builder.tuning.runners.facts import failure_of
from kernel_builder.tuning.runners.forks import Forks, Job
from kernel_builder.tuning.runners.recipe import rebuilt
from kernelhub.formats.tree import Config

_VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")


def compile_job(tunables: Mapping[str, Any], job: Job) -> dict[str, Any] | None:
    """Compile for an architecture, into Triton's cache. Returns the outcome of a refusal.

    What goes wrong for other reasons than the kernel's is left to the process with the device.
    """
    from kernel_builder.compile import driver

    tunable, config = tunables[job["kernel"]], job["config"]
    driver.use(job["arch"])
    try:
        tunable.compile(rebuilt(tunable, job["recipe"]), config)
    except Exception as error:  # noqa: BLE001 - whatever a compiler raises is its verdict
        return _refusal(config, error)
    return None


def _refusal(config: Config, error: Exception) -> dict[str, Any] | None:
    outcome = failure_of(config, error, "fault")
    return None if outcome.reason == "fault" else asdict(outcome)


def serve(requests: int, forks: Forks) -> None:
    """Work on requests until there are none and the asker is gone."""
    text = b""
    forks.selector.register(requests, selectors.EVENT_READ)
    while True:
        for key, _ in forks.selector.select(timeout=1.0):
            if key.fd != requests:
                forks.news(key.fd)
                continue
            data = os.read(requests, 1 << 16)
            if not data:
                forks.kill_all()
                return
            *lines, text = (text + data).split(b"\n")
            for line in lines:
                forks.start(json.loads(line))
        forks.kill_late()


def _first_line(requests: int) -> Any:
    """The first request, read without taking anything of the next."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(requests, 1)
        if not byte:
            sys.exit(0)
        line += byte
    return json.loads(line)


def main() -> None:
    """Entry point."""
    from kernel_builder.tuning.collect import OpenSite
    from kernel_builder.tuning.site import Site

    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    first = _first_line(0)
    os.environ.update(dict.fromkeys(_VISIBLE, ""))
    ahead = Ahead()
    hash_compiler(ahead)
    tunables = OpenSite(Site(**first["site"]), "cpu").tunables
    ahead.join()  # a fork takes no threads along

    def answer(job: Job, outcome: Any) -> None:
        answers.write(json.dumps({"job": job["job"], "outcome": outcome}) + "\n")
        answers.flush()

    _warm_up(tunables)
    answers.write('{"ready": true}\n')
    answers.flush()
    with selectors.DefaultSelector() as selector:
        serve(0, Forks(partial(compile_job, tunables), answer, first["seconds"], selector))


def _warm_up(tunables: Mapping[str, Any]) -> None:
    """Do once what every child would have to do: hash the kernels' sources."""
    for tunable in tunables.values():
        if tunable.language == "triton" and hasattr(tunable.jit, "cache_key"):
            _ = tunable.jit.cache_key
    # Children share this memory; a collection in one of them would copy it all.
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    main()
