"""The GPUs of this machine as the tuner's main process sees them, without touching one."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from kernel_builder.tuning.runners.compilers import Compilers, can_fork
from kernel_builder.tuning.runners.gpu import no_gpu
from kernel_builder.tuning.runners.process import ProcessRunner, Timeouts
from kernel_builder.tuning.site import Site
from kernel_builder.tuning.spread import usable_cores
from kernelhub.errors import MissingExtra, TuningError
from kernelhub.formats.tpu import TpuChip
from kernelhub.formats.tree import DeviceFacts

_TIMEOUT = 20.0
_COMPILING = 600.0  # seconds that a compiler may take for one program on a busy machine
_SHARING = 12  # processes on one device at most: each keeps half a gigabyte of it


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
    """A runner for each GPU, with compilers that they share.

    Their processes are starting when this returns. Close the runners, or use `running`.

    Args:
        gpus: how many, None for all.

    Raises:
        TuningError: there is no GPU, or fewer than asked for.
    """
    cores = usable_cores()
    compilers = Compilers(site, max(1, cores - (gpus or 1))) if can_fork() and cores > 1 else None

    def runner(index: int) -> ProcessRunner:
        arguments = {"site": site.to_json(), "index": index, "l2": l2, "threads": min(cores, 4)}
        return ProcessRunner("device", arguments, compilers=compilers)

    runners = [runner(0)]
    try:
        runners[0].start()
        if compilers is not None:
            compilers.start()
        # Both import torch while this process does, which has to count; of one, its own process
        # says whether it is there.
        for index in range(1, 1 if gpus == 1 else _checked(gpus)):
            runners.append(runner(index))
            runners[-1].start()
    except BaseException:
        for started in runners:
            started.close()
        raise
    return runners


def jax_runners(
    site: Site, gpus: int | None, l2: str, folder: Path, device: DeviceFacts | None = None
) -> list[ProcessRunner]:
    """Runners on one device that JAX sees, or on as many as asked for; several share a GPU.

    A TPU belongs to one process at a time.

    Their processes are starting when this returns. Close the runners, or use `running`.

    Args:
        folder: exists; through it those of a device agree on whose turn it is.
        device: facts that the device must have; None: whatever is there.
    """
    devices, cores = gpus or 1, usable_cores()
    is_tpu = device is not None or has_tpu()
    sharing = 1 if is_tpu else max(1, min(_SHARING, cores * 3 // 4 // devices))
    shared = {"site": site.to_json(), "l2": l2, "threads": max(1, cores // (sharing * devices))}
    shared["device"] = None if device is None else asdict(device)
    timeouts = Timeouts(check=_COMPILING)  # the wait for a turn included
    runners = [
        ProcessRunner(
            "jax", {**shared, "index": i, "turn": str(folder / f"turn-{i}")}, timeouts=timeouts
        )
        for _ in range(sharing)
        for i in range(devices)
    ]
    for runner in runners:
        runner.start()
    return runners


def compiler_runners(
    site: Site, chip: TpuChip, folder: Path, workers: int, finalists: int
) -> list[ProcessRunner]:
    """Runners that ask libtpu's compiler about a chip; none of it need be here.

    Args:
        folder: exists; what the compiler says is shared through it.
        workers: processes, each of which compiles one thing at a time.
        finalists: configurations of each strategy that are compiled.
    """
    arguments = {
        "site": site.to_json(), "chip": chip.name, "folder": str(folder), "count": finalists
    }  # fmt: skip
    timeouts = Timeouts(check=_COMPILING)
    return [ProcessRunner("tpu-compiler", arguments, timeouts=timeouts) for _ in range(workers)]


def has_tpu() -> bool:
    """Whether a TPU is plugged into this machine, as the kernel's device files say."""
    return any(Path("/dev").glob("accel[0-9]*")) or any(Path("/dev/vfio").glob("[0-9]*"))


def _checked(gpus: int | None) -> int:
    """How many GPUs to use, if there are so many."""
    available = gpu_count()
    if not available:
        raise no_gpu()
    if gpus is not None and gpus > available:
        raise TuningError(f"--gpus {gpus}, but torch sees {available}")
    return available if gpus is None else gpus


def collecting_runner(site: Site, *, interpret: bool = False) -> ProcessRunner:
    """A runner that can find launches on a GPU.

    Args:
        interpret: without a GPU, run the cases on the CPU, Triton kernels in its interpreter. That
            takes minutes for the shapes that kernels are usually tuned for.

    Raises:
        TuningError: there is no GPU, and `interpret` is not given.
    """
    if site.framework == "jax":  # traced, not run
        return ProcessRunner("jax", {"site": site.to_json(), "index": None})
    if gpu_count():
        return ProcessRunner("device", {"site": site.to_json(), "index": 0})
    if not interpret:
        raise TuningError(
            "listing launches runs every case, and there is no GPU that torch can see",
            hint="run this on a machine with one; for small cases --interpret does without it",
        )
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
