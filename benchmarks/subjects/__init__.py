"""Kernels that the tuning benchmarks measure: the project's own examples, a plain matmul, and
kernels of installed packages, taken as they are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kernel_builder.tuning.site import Site

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
MATRICES = ROOT / "benchmarks" / "results" / "matrices"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Some kernels to tune together.

    Attributes:
        site: how to import them.
        measurements: folder of their measurement files.
        distributions: packages that they come from, as pip names them; empty for our own.
        kernels: which of the package's tunables; empty means all that the workloads launch.
    """

    site: Site
    measurements: Path
    distributions: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()


def _example(name: str) -> Subject:
    from kernel_builder.tuning.tune import project_place  # a kernel's own package imports less

    place = project_place(ROOT / "examples" / name)
    return Subject(site=place.site, measurements=place.measurements)


def _here(package: str, file: str, *distributions: str, kernels: tuple[str, ...] = ()) -> Subject:
    site = Site(paths=(str(ROOT),), package=package, workloads=str(HERE / file))
    return Subject(site=site, measurements=MATRICES, distributions=distributions, kernels=kernels)


def subject(name: str) -> Subject:
    """The subject of that name; KeyError if there is none."""
    return NAMES[name]()


NAMES = {
    "rms-norm": lambda: _example("rms-norm"),
    "softmax": lambda: _example("softmax"),
    "matmul": lambda: _here("benchmarks.subjects.matmul", "matmul_workloads.py"),
    "liger-dyt": lambda: _here("liger_kernel", "liger_dyt.py", "liger-kernel"),
    "fla-l2norm": lambda: _here("fla", "fla_l2norm.py", "fla-core", "einops"),
}
