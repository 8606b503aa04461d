"""Does a measurement repeat in another process, and what does its best configuration cost there?

    python -m benchmarks.repeat [FOLDER ...] [--first N] [--json [FILE]]

Each folder holds one folder for each process, each of these measurement files of the same kernels;
without any, those in `benchmarks/results/repeat`: RMS norm measured with all samples of a cell from
one CUDA graph (two processes on one GPU, one on another), and with a graph for each sample (two
processes). The policy in all of these files is that of before, "cuda-graph". Every two processes of
a folder are compared, by the lowest sample of a cell and by the median; with --first by the first N
samples alone, which every cell has alike. Needs no GPU.
"""

from __future__ import annotations

import itertools
import json
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks._report import Figure, Report, arguments, emit, environment
from kernel_builder.tuning.matrix import Cell, config_key, geomean
from kernel_builder.tuning.summary import lowest, median

RESULTS = Path(__file__).resolve().parent / "results" / "repeat"
Summary = Callable[[Sequence[float]], Cell]
SUMMARIES: dict[str, Summary] = {"lowest": lowest, "median": median}

Samples = Mapping[tuple[str, str], Mapping[str, Sequence[float]]]
"""By context and point, then by configuration."""
Times = Mapping[str, Cell]
"""Of the configurations on one point."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeated:
    """Two processes on one kernel.

    Attributes:
        deviations: of each cell: how far the ratio of its two times is from its point's median
            ratio, as a ratio of at least 1.
        costs: of each point and either process: the time of the configuration that is the best in
            the other one, over that of the best.
        surprising: share of the cells whose deviation is more than twice the error stated.
    """

    deviations: Sequence[float]
    surprising: float
    costs: Sequence[float]


def read(path: Path) -> Samples:
    """The samples of every cell that has any."""
    found: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row.get("samples"):
            context, point = row["result"]
            found[context, point][config_key(row["config"])] += row["samples"]
    return found


def repeated(pairs: Sequence[tuple[Times, Times]]) -> Repeated:
    """Compare the times of the same configurations on the same points."""
    deviations: list[float] = []
    costs: list[float] = []
    surprising = 0
    for one, other in pairs:
        ratios = {key: _ms(other[key]) / _ms(one[key]) for key in one}
        middle = statistics.median(ratios.values())
        for key, ratio in ratios.items():
            deviations.append(max(ratio / middle, middle / ratio))
            stated = math.hypot(*(cell.error / _ms(cell) for cell in (one[key], other[key])))
            surprising += deviations[-1] - 1 > 2 * stated
        costs += [_cost(one, other), _cost(other, one)]
    return Repeated(
        deviations=sorted(deviations), costs=costs, surprising=surprising / len(deviations)
    )


def _cost(chosen: Times, paid: Times) -> float:
    best = min(chosen, key=lambda key: _ms(chosen[key]))
    return _ms(paid[best]) / min(map(_ms, paid.values()))


def _ms(cell: Cell) -> float:
    assert cell.ms is not None
    return cell.ms


def paired(
    one: Samples, other: Samples, summary: Summary, first: int | None
) -> list[tuple[Times, Times]]:
    """The cells that both have, by point."""
    pairs = []
    for point in sorted(one.keys() & other.keys()):
        keys = sorted(one[point].keys() & other[point].keys())
        times = [{key: summary(of[point][key][:first]) for key in keys} for of in (one, other)]
        if keys:
            pairs.append((times[0], times[1]))
    return pairs


def figures(folder: Path, first: int | None) -> list[Figure]:
    """One for every two processes, kernel and summary."""
    found = []
    processes = sorted(path for path in folder.iterdir() if path.is_dir())
    for one, other in itertools.combinations(processes, 2):
        for file in sorted(path for path in one.glob("*.jsonl") if (other / path.name).exists()):
            samples = read(file), read(other / file.name)
            kernel = file.name.split(".")[-3]
            for summary, function in SUMMARIES.items():
                name = f"{folder.name}, {one.name} and {other.name}: {kernel}, {summary}"
                found.append(_figure(name, paired(*samples, function, first)))
    return found


def _figure(name: str, pairs: Sequence[tuple[Times, Times]]) -> Figure:
    if not pairs:
        raise SystemExit(f"{name}: no cell in common")
    found = repeated(pairs)
    cells = found.deviations
    middle, most, nearly_all = (
        f"{cells[int(share * (len(cells) - 1))] - 1:.1%}" for share in (0.5, 0.9, 0.99)
    )
    return Figure(
        name=name,
        value=round(100 * (geomean(found.costs) - 1), 2),
        unit="% lost",
        note=f"worst {max(found.costs):.3f} of the best; cells off by {middle}, p90 {most}, "
        f"p99 {nearly_all}, {found.surprising:.0%} by more than twice their error; "
        f"{len(pairs)} points, {len(cells)} cells",
    )


def origin(folder: Path) -> dict[str, str]:
    """Device and versions that the first file of a folder was measured with."""
    with min(folder.glob("*/*.jsonl")).open(encoding="utf-8") as file:
        context = json.loads(file.readline())
    return {"device": context["device"]["name"], **context["tools"]}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER")
    parser.add_argument("--first", type=int, metavar="N", help="samples of each cell; default all")
    options = parser.parse_args()
    folders = options.folders or sorted(path for path in RESULTS.iterdir() if path.is_dir())
    emit(
        Report(
            title="What the best of one process costs in another, and how far cells deviate",
            figures=[figure for folder in folders for figure in figures(folder, options.first)],
            environment=environment(measured_with=origin(folders[0])),
        ),
        options,
    )


if __name__ == "__main__":
    main()
