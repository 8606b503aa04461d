"""What a pool of workers is given, and what it gives back. Plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .launch import Refusal, Resources
from .targets import Target


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
