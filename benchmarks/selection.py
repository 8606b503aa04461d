"""How good is the configuration that each way of choosing picks, on shapes it has not seen?

    python -m benchmarks.selection [--json] [FILE ...]

Reads measured matrices (the examples' and `benchmarks/results/matrices/`), fits every method on the
points that are not held out, with at most 8 configurations, and scores it on the held-out points:
slowdown against the best configuration that was measured there. Needs no GPU; Helion's methods are
left out where helion is not installed.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import io
import json
import logging
import math
import platform
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.peers import helion_heuristic
from benchmarks.subjects import MATRICES, ROOT
from kernel_builder.tuning.build import newest_context
from kernel_builder.tuning.evaluate import Scores, chooser, evaluate
from kernel_builder.tuning.fit import FitOptions, fit
from kernel_builder.tuning.fit.loss import make_rows
from kernel_builder.tuning.fit.subset import choose, useful_columns
from kernel_builder.tuning.log import Measurements
from kernel_builder.tuning.matrix import Matrix, geomean
from kernel_builder.tuning.search import nearest_points
from kernelhub.formats.tree import Config, Literal

LIMIT = 8
GEOMEAN_TARGET = 1.02
WORST_TARGET = 1.10
OURS = "kernelhub tree"
Choose = Callable[[Mapping[str, Literal]], Config]


def tree(training: Matrix) -> Choose:
    """What `kernel-builder tune` ships."""
    fitted = fit(training, FitOptions(max_configs=LIMIT))
    return chooser(fitted.root, fitted.configs)


def single_best(training: Matrix) -> Choose:
    """The one configuration that is best for all training points together."""
    fitted = fit(training, FitOptions(max_configs=1))
    return chooser(fitted.root, fitted.configs)


def nearest_in_log_space(training: Matrix) -> Choose:
    """The best of the same few configurations on the nearest training point, by log of sizes."""
    options = FitOptions(max_configs=LIMIT)
    rows = make_rows(training, options.max_slowdown)
    columns = choose(rows.loss, useful_columns(rows.loss), LIMIT)
    configs = [training.configs[c] for c in columns]
    points = [p for p in training.points if training.best(p) is not None]

    def pick(features: Mapping[str, Literal]) -> Config:
        near = points[nearest_points(features, [p.features for p in points])[0]]
        return min(configs, key=lambda c: training.slowdown(near, c) or math.inf)

    return pick


def helion(backend: str) -> Callable[[Matrix], Choose]:
    """Helion's method, as the published kernels used it (threshold 1.01, 8 configurations)."""
    return lambda training: helion_heuristic.chooser(training, backend, LIMIT, 1.01)


METHODS: dict[str, Callable[[Matrix], Choose]] = {
    OURS: tree,
    "helion tree": helion("decision_tree"),
    "helion nearest": helion("nearest_neighbor"),
    "nearest in log space": nearest_in_log_space,
    "single best": single_best,
}


def matrices(paths: list[Path]) -> dict[str, Matrix]:
    """Kernel and device -> the newest measurements of it."""
    found = {}
    for path in paths:
        measurements = Measurements.read(path)
        context = newest_context(measurements, None)
        found[path.name.removesuffix(".jsonl")] = measurements.matrix(context)
    return found


def score(matrix: Matrix, method: Callable[[Matrix], Choose]) -> Scores:
    training, held_out = matrix.split()
    with contextlib.redirect_stdout(io.StringIO()):  # the peer's generator prints
        return evaluate(method(training), held_out)


def figures(name: str, matrix: Matrix, methods: list[str]) -> list[dict[str, object]]:
    """Rows of the table for one kernel: ours with targets, then each peer."""
    scored = {method: score(matrix, METHODS[method]) for method in methods}
    rows: list[dict[str, object]] = []
    for method, scores in scored.items():
        finite = [s.slowdown for s in scores.known if s.slowdown and math.isfinite(s.slowdown)]
        failing = len(scores.scores) - len(finite)
        ours = method == OURS
        for what, value, target in (
            ("geomean", geomean(finite), GEOMEAN_TARGET),
            ("worst", max(finite, default=math.nan), WORST_TARGET),
        ):
            rows.append(
                {
                    "name": f"selection {what}: {name}",
                    "value": round(value, 4),
                    "unit": "slowdown",
                    "target": target if ours else None,
                    "met": value <= target and not failing if ours else None,
                    "peer": None if ours else method,
                    "note": f"{len(scores.scores)} held-out points of {len(matrix.points)}"
                    + (
                        f", {failing} chosen configurations fail or were not measured"
                        * bool(failing)
                    ),
                }
            )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description="Score ways to choose configurations.")
    parser.add_argument("files", nargs="*", type=Path, help="measurement files; default: all")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    paths = options.files or sorted(
        [*MATRICES.glob("*.jsonl"), *ROOT.glob("examples/*/tuning/measurements/*.jsonl")],
        key=lambda p: p.name,
    )
    methods = [m for m in METHODS if not m.startswith("helion") or helion_heuristic.available()]
    rows: list[dict[str, object]] = []
    if not options.json:
        print(f"{'held-out slowdown, geomean / worst':50}", *(f"{m:>22}" for m in methods))
    for name, matrix in matrices(paths).items():
        mine = figures(name, matrix, methods)
        rows += mine
        if not options.json:
            cells = [
                f"{mine[2 * i]['value']:.3f} / {mine[2 * i + 1]['value']:.3f}"
                for i in range(len(methods))
            ]
            print(f"{name:50}", *(f"{cell:>22}" for cell in cells), flush=True)
    if options.json:
        environment = {"python": platform.python_version(), "machine": platform.machine()}
        for package in ("helion", "scikit-learn"):
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                environment[package] = importlib.metadata.version(package)
        report = {
            "figures": rows,
            "environment": environment,
            "command": "python -m benchmarks.selection --json",
        }
        print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
