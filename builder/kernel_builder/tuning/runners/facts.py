"""What an exception says about a configuration, and which tools measured it."""

from __future__ import annotations

import contextlib
import importlib.metadata
import platform
from collections import Counter
from pathlib import Path
from typing import Any

from kernel_builder.tuning.runner import Outcome
from kernelhub.errors import KernelHubError
from kernelhub.formats.tree import Config


def failure_of(config: Config, error: Exception, otherwise: str) -> Outcome:
    """What an exception means. A workload's own fault is no verdict on a configuration."""
    text = str(error).strip() or type(error).__name__
    name = type(error).__name__
    cause = type(error.__cause__).__name__ if error.__cause__ is not None else ""
    if "OutOfResources" in (name, cause) or "RESOURCE_EXHAUSTED" in text:
        reason = "out_of_resources"
    elif {"CompilationError", "CompileTimeAssertionFailure", "PTXASError"} & {name, cause}:
        reason = "compile_error"
    else:
        reason = otherwise
    detail = text if isinstance(error, KernelHubError) else f"{name}: {text}"
    return Outcome(config=config, reason=reason, detail=detail[:500])


def count_compilations() -> Counter[str]:
    """A counter of what this process finds compiled from now on, and what it compiles itself.

    Both stay 0 where Triton is not installed, or runs its interpreter.
    """
    found = Counter(found_compiled=0, compiled_here=0)
    try:
        from triton import knobs
    except ImportError:
        return found
    before = knobs.compilation.listener

    def listen(*, cache_hit: bool, **more: Any) -> None:
        found["found_compiled" if cache_hit else "compiled_here"] += 1
        if before is not None:
            before(cache_hit=cache_hit, **more)

    knobs.compilation.listener = listen
    return found


def tools_of(torch: Any) -> dict[str, str]:
    tools = {"torch": torch.__version__, "python": platform.python_version()}
    for name in ("triton", "jax"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            tools[name] = importlib.metadata.version(name)
    runtime = torch.version.cuda or torch.version.hip
    return tools if runtime is None else {**tools, "runtime": runtime, "driver": _driver()}


def _driver() -> str:
    """Version of the kernel driver, as far as the vendor's file says."""
    for path in ("/sys/module/nvidia/version", "/sys/module/amdgpu/version"):
        with contextlib.suppress(OSError):
            return Path(path).read_text().strip()
    return "unknown"
