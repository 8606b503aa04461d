"""Compile a JAX function for a TPU that is not there, with libtpu on a CPU.

libtpu may end the process that it runs in: call this in a worker. One process compiles one thing at
a time, as the compiler's dump has no name to tell two apart.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel_builder.tuning.tpu.schedule import Schedule, read_schedule
from kernel_builder.tuning.traced import import_jax
from kernelhub.errors import MissingExtra, TuningError
from kernelhub.formats.tpu import TpuChip

_DUMP = (
    "--xla_jf_dump_to={folder}",
    "--xla_jf_dump_llo_text=true",
    "--xla_jf_dump_llo_pass_label_regex=.*final_bundles.*",
)
_USED = re.compile(r'"used_scoped_memory_configs":\[(.*?)\]')
_KERNEL = 'custom_call_target="tpu_custom_call"'
_VMEM = re.compile(r'"memory_space":"1".*?"size":"(\d+)"')
_SIZES = (
    re.compile(r"size ([\d.]+)([KMG]?) and limit ([\d.]+)([KMG]?)"),
    re.compile(r"Used ([\d.]+)([KMG]?) of ([\d.]+)([KMG]?) vmem"),
)
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """What the compiler says of a program that it accepts.

    Attributes:
        vmem: bytes that it takes, None where the compiler does not say.
        schedule: None where the compiler left none.
        seconds: that compiling took.
    """

    vmem: int | None
    schedule: Schedule | None
    seconds: float


class OverVmem(Exception):
    """The program needs more VMEM than there is.

    Attributes:
        needed, available: bytes, None where the compiler names none.
    """

    def __init__(self, needed: int | None, available: int | None, text: str) -> None:
        super().__init__(text)
        self.needed = needed
        self.available = available


def prepare_process() -> Path:
    """Set this process up before JAX is imported. Returns the folder that libtpu will dump to.

    Raises:
        TuningError: JAX has started already.
    """
    folder = Path(tempfile.mkdtemp(prefix="kernelhub-libtpu-"))
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["TPU_SKIP_MDS_QUERY"] = "1"  # there is no machine to ask for metadata
    os.environ.setdefault("TPU_ACCELERATOR_TYPE", "v5litepod-4")
    os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
    os.environ["ALLOW_MULTIPLE_LIBTPU_LOAD"] = "1"  # it drives no device, so there is no conflict
    os.environ["LIBTPU_INIT_ARGS"] = " ".join(_DUMP).format(folder=folder)
    return folder


class ChipCompiler:
    """Compiles for one kind of chip.

    Args:
        chip: which.
        dump: the folder that `prepare_process` made.

    Raises:
        MissingExtra: jax or libtpu is not installed.
        TuningError: this libtpu does not know the chip.
    """

    def __init__(self, chip: TpuChip, dump: Path) -> None:
        self._jax = import_jax()
        self._dump = dump
        self.device = _device(chip)

    @property
    def version(self) -> str:
        """Of libtpu."""
        import importlib.metadata

        return importlib.metadata.version("libtpu")

    def compile(self, function: Callable[..., Any], shapes: Sequence[Any]) -> Compiled:
        """Compile a function of arrays of these shapes.

        Raises:
            OverVmem: it does not fit.
            Exception: whatever tracing or compiling raises.
        """
        sharding = self._jax.sharding.SingleDeviceSharding(self.device)
        placed = [self._jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=sharding) for s in shapes]
        self._clean()
        start = time.monotonic()
        try:
            with self.tracing():
                compiled = self._jax.jit(function).lower(*placed).compile()
        except Exception as error:
            raise _translated(error) from error
        seconds = time.monotonic() - start
        # XLA's own programs around the kernel use VMEM too, and say so on lines of their own.
        kernels = [line for line in compiled.as_text().splitlines() if _KERNEL in line]
        vmem = [int(n) for line in kernels for u in _USED.findall(line) for n in _VMEM.findall(u)]
        return Compiled(
            vmem=max(vmem, default=None), schedule=self._schedule(), seconds=round(seconds, 3)
        )

    def tracing(self) -> Any:
        """A context in which Pallas takes this chip for the one that it traces for."""
        sharding = self._jax.sharding
        abstract = sharding.AbstractDevice(
            device_kind=self.device.device_kind,
            num_cores=getattr(self.device, "num_cores", None) or 1,
            platform="tpu",
        )
        return sharding.use_abstract_mesh(sharding.AbstractMesh((), (), abstract_device=abstract))

    def close(self) -> None:
        """Remove what libtpu dumped. Safe to call twice."""
        shutil.rmtree(self._dump, ignore_errors=True)

    def _clean(self) -> None:
        for path in self._dump.iterdir():
            path.unlink()

    def _schedule(self) -> Schedule | None:
        """That of the kernel; of several kernels, all their loops."""
        found = []
        for path in sorted(self._dump.glob("*-final_bundles.txt")):
            with path.open(encoding="utf-8", errors="replace") as lines:
                found.append(read_schedule(lines))
        loops = tuple(loop for schedule in found if schedule for loop in schedule.loops)
        return Schedule(loops) if loops else None


def _device(chip: TpuChip) -> Any:
    from jax.experimental import topologies

    try:
        return topologies.get_topology_desc(chip.topology, "tpu").devices[0]
    except ModuleNotFoundError as error:
        raise MissingExtra("compiling for a TPU", "tpu") from error
    except Exception as error:
        if "libtpu" in str(error).lower() and "not" in str(error).lower():
            raise MissingExtra("compiling for a TPU", "tpu") from error
        raise TuningError(
            f"libtpu does not compile for {chip.facts.name}: {error}",
            hint="a newer libtpu may know it",
        ) from error


def _translated(error: Exception) -> Exception:
    text = str(error)
    if "RESOURCE_EXHAUSTED" not in text or "vmem" not in text.lower():
        return error
    for pattern in _SIZES:
        found = pattern.search(text)
        if found is not None:
            needed, available = (
                int(float(number) * _UNITS[unit])
                for number, unit in (found.group(1, 2), found.group(3, 4))
            )
            return OverVmem(needed, available, f"{found[0]}")
    return OverVmem(None, None, text[:300])
