"""How good is the configuration that each way of choosing picks, on shapes it has not seen?

    python -m benchmarks.selection [FILE ...] [--jobs N] [--json [FILE]]

Reads measured matrices (the examples' and `benchmarks/results/matrices/`), fits every method on the
points that are not held out, with at most 8 configurations, and scores it on the held-out points:
slowdown against the best configuration that was measured there. Needs no GPU; Helion's methods are
left out where helion is not installed. The last column is a bound: what the 8 configurations that
suit all points reach where every point, held out or not, takes the best of them.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import logging
import math
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from benchmarks._report import PACKAGES, Figure, Report, arguments, emit, environment
from benchmarks.peers import helion_heuristic
from benchmarks.subjects import MATRICES, ROOT
from kernel_builder.tuning.build import newest_context
from kernel_builder.tuning.evaluate import Rank, Scores, evaluate, ranker
from kernel_builder.tuning.fit import FitOptions, fit
from kernel_builder.tuning.fit.loss import make_rows
from kernel_builder.tuning.fit.subset import choose, useful_columns
from kernel_builder.tuning.log import Measurements
from kernel_builder.tuning.matrix import Matrix, geomean
from kernel_builder.tuning.search import nearest_points
from kernelhub.formats.tree import Config, Literal

LIMIT = 8
LEAST_POINTS = 24  # fewer say nothing about shapes that were left out
GEOMEAN_TARGET = 1.02
WORST_TARGET = 1.10
OURS = "kernelhub tree"


def tree(training: Matrix) -> Rank:
    """What `kernel-builder tune` ships."""
    fitted = fit(training, FitOptions(max_configs=LIMIT))
    return ranker(fitted.root, fitted.configs)


def single_best(training: Matrix) -> Rank:
    """The one configuration that is best for all training points together."""
    fitted = fit(training, FitOptions(max_configs=1))
    return ranker(fitted.root, fitted.configs)


def nearest_in_log_space(training: Matrix) -> Rank:
    """The best of the same few configurations on the nearest training point, by log of sizes."""
    options = FitOptions(max_configs=LIMIT)
    rows = make_rows(training, options.max_slowdown)
    columns = choose(rows.loss, useful_columns(rows.loss), LIMIT)
    configs = [training.configs[c] for c in columns]
    points = [p for p in training.points if training.best(p) is not None]

    def rank(features: Mapping[str, Literal]) -> list[Config]:
        near = points[nearest_points(features, [p.features for p in points])[0]]
        return sorted(configs, key=lambda c: training.slowdown(near, c) or math.inf)

    return rank


def helion(backend: str) -> Callable[[Matrix], Rank]:
    """Helion's method, as the published kernels used it (threshold 1.01, 8 configurations)."""

    def method(training: Matrix) -> Rank:
        choose = helion_heuristic.chooser(training, backend, LIMIT, 1.01)
        return lambda features: [choose(features)]

    return method


def best_of_eight(matrix: Matrix) -> Rank:
    """No method but a bound: the 8 configurations that suit all points, those that are held out
    too, of which every point takes its best. No tree of 8 configurations is much better."""
    rows = make_rows(matrix, FitOptions().max_slowdown)
    configs = [matrix.configs[c] for c in choose(rows.loss, useful_columns(rows.loss), LIMIT)]
    times = {
        frozenset(point.features.items()): [matrix.slowdown(point, c) or math.inf for c in configs]
        for point in matrix.points
    }

    def rank(features: Mapping[str, Literal]) -> list[Config]:
        mine = times[frozenset(features.items())]
        # What the author's pruning drops does not run, so its time is no reason to take it.
        return [configs[i] for i in sorted(range(len(configs)), key=mine.__getitem__)]

    return rank


METHODS: dict[str, Callable[[Matrix], Rank]] = {
    OURS: tree,
    "helion tree": helion("decision_tree"),
    "helion nearest": helion("nearest_neighbor"),
    "nearest in log space": nearest_in_log_space,
    "single best": single_best,
}
BOUND = "best 8 in hindsight"


def matrices(paths: list[Path]) -> dict[str, Matrix]:
    """Kernel and device -> the newest measurements of it, where there are enough."""
    found = {}
    for path in paths:
        measurements = Measurements.read(path)
        begun = any(measurements.count(context) for context in measurements.newest_first())
        matrix = measurements.matrix(newest_context(measurements, None)) if begun else None
        points = 0 if matrix is None else len(matrix.points)
        if matrix is None or points < LEAST_POINTS:
            text = f"{path.name}: left out, {points} points measured, not {LEAST_POINTS}"
            print(text, file=sys.stderr)
            continue
        found[path.name.removesuffix(".jsonl")] = matrix
    return found


def score(matrix: Matrix, method: str) -> Scores:
    """A method's choices on the held-out points."""
    training, held_out = matrix.split()
    if method == BOUND:
        return evaluate(best_of_eight(matrix), held_out)
    with contextlib.redirect_stdout(io.StringIO()):  # the peer's generator prints
        return evaluate(METHODS[method](training), held_out)


def figures(name: str, matrix: Matrix, methods: list[str]) -> list[Figure]:
    """Rows of the table for one kernel: ours with targets, then each peer."""
    rows: list[Figure] = []
    for method in methods:
        scores = score(matrix, method)
        finite = [s.slowdown for s in scores.known if s.slowdown and math.isfinite(s.slowdown)]
        failing = len(scores.scores) - len(finite)
        ours = method == OURS
        note = f"{len(scores.scores)} held-out points of {len(matrix.points)}"
        for what, value, target in (
            ("geomean", geomean(finite), GEOMEAN_TARGET),
            ("worst", max(finite, default=math.nan), WORST_TARGET),
            ("failing or unmeasured choices", float(failing), 0.0),
        ):
            rows.append(
                Figure(
                    name=f"{name} {what}: {method}",
                    value=round(value, 4),
                    unit="points" if what.startswith("failing") else "x of the best",
                    target=target if ours else None,
                    peer=None if ours else method,
                    note=note,
                )
            )
    return rows


def table(rows: dict[str, list[Figure]], methods: list[str]) -> None:
    """One line for each kernel: geometric mean / worst, and failures where there are any."""
    print(f"{'held-out slowdown, geomean / worst':56}", *(f"{m:>22}" for m in methods))
    for name, figures_of in rows.items():
        cells = []
        for index in range(len(methods)):
            mean, worst, failing = (f.value for f in figures_of[3 * index : 3 * index + 3])
            fails = f" ({failing:.0f} fail)" if failing else ""
            cells.append(f"{mean:.3f} / {worst:.3f}{fails}")
        print(f"{name:56}", *(f"{cell:>22}" for cell in cells))


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("files", nargs="*", type=Path, help="measurement files; default: all")
    parser.add_argument("--jobs", type=int, help="kernels at a time; default: one for each core")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    paths = options.files or sorted(
        [*MATRICES.glob("*.jsonl"), *ROOT.glob("examples/*/tuning/measurements/*.jsonl")],
        key=lambda p: p.name,
    )
    if not paths:
        sys.exit("nothing is measured yet: sh benchmarks/gpu/run_tuning.sh on a machine with a GPU")
    there = helion_heuristic.available()
    methods = [m for m in METHODS if not m.startswith("helion") or there] + [BOUND]
    found = matrices(paths)
    with ProcessPoolExecutor(options.jobs) as pool:
        each = pool.map(figures, found, found.values(), itertools.repeat(methods))
        rows = dict(zip(found, each, strict=True))
    if options.json is None:
        table(rows, methods)
        return
    every = [figure for figures_of in rows.values() for figure in figures_of]
    title = "Slowdown against the best configuration known"
    facts = environment((*PACKAGES, "helion"))
    emit(Report(title=title, figures=every, environment=facts), options)


if __name__ == "__main__":
    main()
