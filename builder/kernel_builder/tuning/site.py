"""Where the code to tune is: what a measuring process needs in order to import it. Plain data."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelhub.errors import InputError

if TYPE_CHECKING:  # measuring processes import this module, and need nothing of a project
    from kernel_builder.project import Project

MEASUREMENTS = "tuning/measurements"


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A package that can be imported, and its workload file.

    Attributes:
        paths: folders that go to the front of `sys.path`.
        package: name of the package that defines the tunables.
        workloads: the workload file.
        record: a file of recorded launches to tune for instead of the file's cases.
        requirement: a published kernel ("org/name==1") to load in place of importing `package`.
        trust: whether that kernel may run whoever published it.
        framework: whose arrays the tunables take, "torch" or "jax".
    """

    paths: tuple[str, ...]
    package: str
    workloads: str
    record: str | None = None
    requirement: str | None = None
    trust: bool = False
    framework: str = "torch"

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; `Site(**value)` is the inverse."""
        return asdict(self)


def site_of(
    project: Project,
    framework: str,
    *,
    workloads: Path | None = None,
    record: Path | None = None,
    tpu: bool = False,
) -> Site:
    """The site of a project on disk.

    A file `workloads_jax.py` beside the one that build.toml names is JAX's own, `workloads_tpu.py`
    is for TPUs; where there is neither, all share the one.

    Args:
        workloads: a workload file in place of those that the project has.
        tpu: whether it is tuned for a TPU.

    Raises:
        InputError: the project has no package for that framework.
    """
    if framework not in project.packages:
        raise InputError(
            f"{project.root} has no package for {framework}",
            hint=f"build.toml declares {', '.join(sorted(project.packages)) or 'none'}",
        )
    named = project.root / (project.build_file.workloads or "tuning/workloads.py")
    kinds = ["tpu", framework] if tpu else [framework]
    own = [named.with_name(f"{named.stem}_{kind}.py") for kind in kinds]
    default = next((file for file in own if file.is_file()), named)
    return Site(
        paths=(str(project.package(framework).parent),),
        package=project.build_file.python_name,
        workloads=str(workloads or default),
        record=None if record is None else str(record.resolve()),
        framework=framework,
    )


def measurement_folder(project: Project, framework: str) -> Path:
    """Where the results of a project's kernels are kept; those of JAX lie apart from torch's."""
    folder = project.root / MEASUREMENTS
    return folder / framework if framework == "jax" else folder


def measurement_file(folder: Path, kernel: str, device_slug: str) -> Path:
    """Where the results of one kernel on one device are kept."""
    return folder / f"{kernel}.{device_slug}.jsonl"
