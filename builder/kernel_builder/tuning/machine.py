"""The GPUs of this machine as the tuner's main process sees them, without touching one."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from kernel_builder.tuning.runners.device import no_gpu
from kernel_builder.tuning.runners.process import ProcessRunner
from kernel_builder.tuning.site import Site
from kernelhub.errors import MissingExtra, TuningError

_TIMEOUT = 20.0


def gpu_count() -> int:
    """Number of GPUs that torch can see; 0 without torch's GPU support.

    Raises:
        MissingExtra: torch is not installed.
    """
    try:
        import torch
    except ImportError as error:
        raise MissingExtra("tuning", "triton") from error
    return int(torch.cuda.device_count()) if torch.cuda.is_available() else 0


def device_runners(site: Site, gpus: int | None, l2: str) -> list[ProcessRunner]:
    """A runner for each GPU; nothing is started yet.

    Args:
        gpus: how many, None for all.

    Raises:
        TuningError: there is no GPU, or fewer than asked for.
    """
    available = gpu_count()
    wanted = available if gpus is None else gpus
    if not available:
        raise no_gpu()
    if wanted > available:
        raise TuningError(f"--gpus {wanted}, but torch sees {available}")
    threads = max(1, (os.cpu_count() or 1) // wanted)
    return [
        ProcessRunner(
            "device", {"site": site.to_json(), "index": index, "l2": l2, "threads": threads}
        )
        for index in range(wanted)
    ]


def collecting_runner(site: Site) -> ProcessRunner:
    """A runner that can find launches: on a GPU, else on the CPU in Triton's interpreter."""
    if gpu_count():
        return ProcessRunner("device", {"site": site.to_json(), "index": 0})
    return ProcessRunner("device", {"site": site.to_json(), "index": None, "interpret": True})


def importing_runner(site: Site) -> ProcessRunner:
    """A runner that only imports the package, on any machine."""
    return ProcessRunner("device", {"site": site.to_json(), "index": None})


@contextmanager
def running(runners: list[ProcessRunner]) -> Iterator[list[ProcessRunner]]:
    """Runners for a block of code: their processes end with it, whatever happens."""
    try:
        yield runners
    finally:
        for runner in runners:
            runner.close()


def refuse_busy_gpus() -> None:
    """Refuse to measure while other processes compute on this machine's GPUs.

    Where the vendor's tool is not installed nothing is known, and the noise of the samples decides.

    Raises:
        TuningError: there are such processes.
    """
    try:
        answer = subprocess.run(
            ["nvidia-smi", "--query-compute-apps=pid,process_name", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return
    others = [line.strip() for line in answer.stdout.splitlines() if line.strip()]
    if others:
        raise TuningError(
            f"{len(others)} other processes use the GPUs: {'; '.join(others[:3])}",
            hint="stop them, or measure anyway with --allow-unstable",
        )
