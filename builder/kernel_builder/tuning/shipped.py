"""Score the trees that lie in a package, as they lie there, against the project's measurements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kernel_builder.tuning.build import Report, judge
from kernel_builder.tuning.fit import Complexity, FitOptions
from kernel_builder.tuning.goals import with_recorded
from kernel_builder.tuning.log import Context, Measurements
from kernel_builder.tuning.matrix import Matrix
from kernel_builder.tuning.site import measurement_file
from kernel_builder.tuning.tune import Place
from kernelhub.errors import FormatError, Problem, StoreError, TuningError
from kernelhub.formats.evidence import Goal, parse_evidence
from kernelhub.formats.tree import Tree, parse


@dataclass(frozen=True, slots=True, kw_only=True)
class _Evidence:
    """What an evaluation needs of an evidence file.

    Attributes:
        complexity: of the tree, for leave-one-shape-out.
        fitted: ids of the points that the tree was fitted to.
        goal: what was asked of the tree, and how it misses it.
    """

    complexity: Complexity
    fitted: frozenset[str]
    goal: Goal


def evaluate_shipped(
    place: Place, kernels: Sequence[str], max_slowdown: float | None = None
) -> list[Report]:
    """A report for each tree of the package, or for those of the named kernels.

    A point that was measured but is not in the tree's evidence as fitted counts as held out.

    Args:
        max_slowdown: a goal to judge by as if nothing were known of misses; None: each tree's own,
            whose evidence may tell of misses.

    Raises:
        TuningError: the package holds no tree, or a tree has no measurements to judge it by.
        FormatError: a tree, its evidence or a measurement file is malformed.
        StoreError: a file cannot be read.
    """
    paths = sorted(p for p in place.output.glob("*.py") if p.name != "__init__.py")
    chosen = [p for p in paths if not kernels or p.stem.rpartition(".")[0] in kernels]
    missing = sorted(set(kernels) - {p.stem.rpartition(".")[0] for p in paths})
    if missing or not chosen:
        raise TuningError(
            f"{place.output} holds no trees{' of ' + ', '.join(missing) if missing else ''}",
            hint="build them: kernel-builder tune",
        )
    return [_evaluate(place, path, max_slowdown) for path in chosen]


def _evaluate(place: Place, path: Path, max_slowdown: float | None) -> Report:
    tree = parse(_read(path).decode("utf-8", "replace"), path.name)
    evidence = _evidence(path.with_suffix(".json"))
    file = measurement_file(place.measurements, tree.kernel, tree.device.slug)
    measurements = Measurements.read(file)
    context = _context_of(tree, measurements)
    matrix = _with_held_out(measurements.matrix(context), evidence.fitted)
    goal = evidence.goal
    options = FitOptions(
        max_configs=goal.max_configs, max_slowdown=max_slowdown or goal.max_slowdown
    )
    report = judge(tree, matrix, context, options, evidence.complexity)
    return report if max_slowdown is not None else with_recorded(report, goal)


def _context_of(tree: Tree, measurements: Measurements) -> Context:
    """The newest measurements of what the tree was tuned for."""
    for context in measurements.newest_first():
        same = (context.source, context.device, dict(context.tools)) == (
            tree.source_hash,
            tree.device,
            dict(tree.tools),
        )
        if same and measurements.count(context):
            return context
    raise TuningError(
        f"{measurements.path} holds no measurements of what the tree of {tree.kernel} was tuned "
        "for (source, device and tools)",
        hint="build it anew: kernel-builder tune --phase build",
    )


def _with_held_out(matrix: Matrix, fitted: frozenset[str]) -> Matrix:
    return matrix.only([replace(p, held_out=p.id not in fitted) for p in matrix.points])


def _evidence(path: Path) -> _Evidence:
    found = parse_evidence(_read(path), path.name)
    fit = found.fit
    try:
        complexity = Complexity(
            configs=int(fit["configs"] or 0),
            compound=bool(fit["compound"]),
            price=float(fit["price"] or 0.0),
            blur=float(fit["blur"] or 0.0),
            learned=bool(fit.get("learned")),  # evidence of before knows none
        )
    except (ValueError, KeyError) as error:
        problem = Problem(message=f"not what a fit settled on: {error!r}", path=path.name, at="fit")
        raise FormatError(
            str(path), [problem], hint="build it anew: kernel-builder tune"
        ) from error
    return _Evidence(
        complexity=complexity,
        fitted=frozenset(p.id for p in found.points if not p.held_out),
        goal=found.goal,
    )


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error
