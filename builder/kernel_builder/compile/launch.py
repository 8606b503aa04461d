"""One launch with one configuration: compiled for a target, measured in what it takes, not run."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelhub.errors import InputError, MissingExtra


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What one compiled configuration takes. None: the compiler does not say.

    Attributes:
        shared_memory: bytes for one block, static and dynamic together.
        num_warps: of one block; may differ from what was asked (warp specialisation).
        registers: for one thread.
        spills: bytes of registers that went to memory, for one thread.
    """

    shared_memory: int
    num_warps: int
    registers: int | None = None
    spills: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why there is no compiled configuration.

    Attributes:
        kind: "compile" (the compiler says no), "crash" (it died), "timeout".
        reason: its own words, shortened.
    """

    kind: str
    reason: str


def compile_launch(
    kernel: Any,
    args: Sequence[Any],
    config: Mapping[str, Any],
    target: str,
    *,
    kwargs: Mapping[str, Any] | None = None,
    details: bool = True,
) -> Resources | Refusal:
    """Compile what `kernel[grid](*args, **kwargs, **config)` would launch on `target`.

    Leaves the process compiling for that target. A compiler that aborts takes the process along.

    Args:
        kernel: a `@triton.jit` function; `triton.heuristics` and `triton.autotune` around it may
            stay, the latter is passed by.
        args: positional arguments: tensors on CPU or "meta" device, dtypes in their place
            (an aligned tensor below 2 GB), numbers.
        config: constexpr parameters and launch options (num_warps, num_stages, ...), flat.
        target: "sm_90", "gfx942", or anything `parse_target` reads.
        kwargs: keyword arguments of the launch, without the grid.
        details: also read registers and spills (3 ms more).

    Raises:
        InputError: `target` is no architecture.
        MissingExtra: triton is not installed.
    """
    try:
        from triton.runtime.jit import MockTensor

        from . import driver
    except ImportError as error:
        raise MissingExtra("compiling Triton kernels", "triton") from error
    driver.use(target)
    inner = kernel
    while hasattr(inner, "configs") and hasattr(inner, "fn"):
        inner = inner.fn
    if not hasattr(inner, "run"):
        raise InputError(f"{kernel!r} is not a Triton kernel")
    arguments = {**(kwargs or {}), **config}
    try:
        made = map(MockTensor.wrap_dtype, args)
        compiled = inner.run(*made, grid=(1,), warmup=True, **arguments)
    except Exception as error:  # noqa: BLE001 - whatever a compiler raises is its refusal
        return Refusal(kind="compile", reason=explain(error))
    return resources(compiled, details=details)


def explain(error: BaseException) -> str:
    """A compiler's error in its own words, without pages of assembly."""
    text = str(error).strip() or type(error).__name__
    cause = error.__cause__
    while cause is not None:  # the innermost says what; the outer ones say where
        text = f"{text}\n{cause}".strip()
        cause = cause.__cause__
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    shown = lines if len(lines) <= _LINES else [*lines[: _LINES - 3], "...", *lines[-2:]]
    return f"{type(error).__name__}: " + "\n".join(line[:200] for line in shown)


_LINES = 12


def resources(compiled: Any, *, details: bool = True) -> Resources:
    """Read them off Triton's compiled kernel."""
    metadata, assembly = compiled.metadata, compiled.asm
    registers = spills = None
    if details and "cubin" in assembly:
        registers, spills = _of_cubin(assembly["cubin"])
    elif details and "amdgcn" in assembly:
        registers, spills = _of_amdgcn(str(assembly["amdgcn"]))
    return Resources(
        shared_memory=int(metadata.shared),
        num_warps=int(metadata.num_warps),
        registers=registers,
        spills=spills,
    )


def _of_cubin(cubin: bytes) -> tuple[int | None, int | None]:
    """From `cuobjdump --dump-resource-usage`, which comes with Triton. STACK is what spilled."""
    import triton

    with tempfile.TemporaryDirectory(prefix="kernel-builder-") as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        done = subprocess.run(
            [triton.knobs.nvidia.cuobjdump.path, "--dump-resource-usage", str(path)],
            capture_output=True,
            text=True,
            check=False,
        )
    return _number(r"\bREG:(\d+)", done.stdout), _number(r"\bSTACK:(\d+)", done.stdout)


def _of_amdgcn(text: str) -> tuple[int | None, int | None]:
    """From the metadata at the end of the assembly. Spilled registers have 4 bytes."""
    spilled = _number(r"\.vgpr_spill_count:\s*(\d+)", text)
    return _number(r"\.vgpr_count:\s*(\d+)", text), None if spilled is None else 4 * spilled


def _number(pattern: str, text: str) -> int | None:
    match = re.search(pattern, text)
    return int(match[1]) if match else None
