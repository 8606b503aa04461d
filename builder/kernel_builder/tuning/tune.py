"""`tune` as a function: collect, measure, build, write. The command line is a thin layer above."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernel_builder.project import TUNING_FOLDER, Project
from kernel_builder.tuning.artifacts import write_artifacts
from kernel_builder.tuning.build import Report, build_tree, newest_context
from kernel_builder.tuning.evaluate import slowdown_text
from kernel_builder.tuning.evidence import render_evidence
from kernel_builder.tuning.goals import Wanted, goal_beside, with_recorded
from kernel_builder.tuning.log import Measurements
from kernel_builder.tuning.site import Site, measurement_folder, site_of
from kernelhub import settings
from kernelhub.dispatch.overlay import folder_of
from kernelhub.errors import InputError, TuningError
from kernelhub.formats.requirement import parse_requirement
from kernelhub.reporter import SILENT, Reporter


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What is tuned and where its files go.

    Attributes:
        site: how to import it.
        measurements: folder of the measurement files.
        output: folder of the trees and their evidence.
    """

    site: Site
    measurements: Path
    output: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """One kernel on one device after building. `files` is empty if the tree was not written."""

    report: Report
    files: tuple[Path, ...]


def project_place(
    path: Path,
    framework: str | None = None,
    *,
    workloads: Path | None = None,
    record: Path | None = None,
    chip: str | None = None,
) -> Place:
    """The place of a project on disk.

    Args:
        framework: "torch" or "jax"; None: the project's only one, else torch.
        chip: name of a TPU; then JAX's package is meant, and `workloads_tpu.py` if there is one.

    Raises:
        InputError, FormatError: see `Project.open` and `site_of`.
    """
    project = Project.open(path)
    framework = "jax" if chip is not None else framework
    chosen = framework or ("torch" if "torch" in project.packages else next(iter(project.packages)))
    return Place(
        site=site_of(project, chosen, workloads=workloads, record=record, tpu=chip is not None),
        measurements=measurement_folder(project, chosen),
        output=project.package(chosen) / TUNING_FOLDER,
    )


def overlay_place(
    text: str, *, workloads: Path | None, record: Path | None = None, trust: bool = False
) -> Place:
    """The place of a published kernel that a user tunes for their own device.

    Raises:
        RequirementError: `text` is no kernel requirement.
        InputError: no workload file is given.
    """
    requirement = parse_requirement(text)
    if workloads is None:
        raise InputError(
            f"what should {text} be tuned for?",
            hint="give --workloads FILE: cases that call the kernel, see "
            "`kernel_builder.tuning.workloads`",
        )
    folder = folder_of(settings.current().overlays, requirement.repo_id)
    site = Site(
        paths=(),
        package="",
        workloads=str(workloads.resolve()),
        record=None if record is None else str(record.resolve()),
        requirement=text,
        trust=trust,
    )
    return Place(site=site, measurements=folder / "measurements", output=folder)


def build(
    place: Place,
    wanted: Wanted,
    *,
    kernels: Sequence[str] = (),
    device: str | None = None,
    sources: Mapping[str, str] | None = None,
    l2: str | None = None,
    allow_misses: bool = False,
    reporter: Reporter = SILENT,
) -> list[Built]:
    """Build every measured kernel (or those named) on every measured device (or the one named).

    A tree that misses its goal is written only with `allow_misses`; its evidence then says so. A
    tree that is built anew keeps its goal, and the misses that its evidence tells of are no news.

    Args:
        wanted: the goal, as far as it is not that of the tree that is there. Where it names a
            slowdown, misses of the tree that is there are not excused.
        device: slug of the device whose trees are built; those of others are not touched.
        sources: hashes of the kernels as they are now; measurements of others are not used.
            None: they cannot be known.

    Raises:
        TuningError: nothing was measured, or a kernel has no usable measurement.
        FormatError, StoreError: a measurement file is malformed, or the disk fails.
    """
    files = _measured(place.measurements, kernels, device)
    reporter.stage("build", total=len(files), unit="trees")
    built = []
    for path in files:
        found = Measurements.read(path)
        kernel = _kernel_of(found)
        source = None if sources is None else sources.get(kernel, "removed")
        known = goal_beside(place.output / f"{path.stem}.py")
        options = wanted.options(known)
        report = build_tree(found, newest_context(found, source, l2), options)
        if wanted.max_slowdown is None:
            report = with_recorded(report, known)
        files_written: list[Path] = []
        if not report.new_misses or allow_misses:
            evidence = render_evidence(report, options)
            files_written = write_artifacts(place.output, report.tree, evidence)
        built.append(Built(report=report, files=tuple(files_written)))
        reporter.advance(1, note=f"{kernel}: {slowdown_text(report.left_out.geomean)} left out")
    reporter.done()
    return built


def _measured(folder: Path, kernels: Sequence[str], device: str | None) -> list[Path]:
    """The measurement files of some kernels (all if none is named) on some device."""
    found = {path: path.stem.rpartition(".") for path in sorted(folder.glob("*.jsonl"))}
    known = {path: kernel for path, (kernel, _, slug) in found.items() if device in (None, slug)}
    chosen = [path for path, kernel in known.items() if not kernels or kernel in kernels]
    missing = sorted(set(kernels) - set(known.values()))
    if missing or not chosen:
        what = f" of {', '.join(missing)}" if missing else ""
        where = f" on {device}" if device else ""
        raise TuningError(
            f"{folder} holds no measurements{what}{where}",
            hint="measure first, on a machine with the GPU: kernel-builder tune --phase measure",
        )
    return chosen


def _kernel_of(found: Measurements) -> str:
    if not found.contexts:
        raise TuningError(f"{found.path} holds no measurements")
    return found.newest_first()[0].kernel
