"""Wall time to tune some shapes: `kernel-builder tune` against `triton.autotune`, same run.

    python -m benchmarks.tuning_time [--subject rms-norm] [--cases 6] [--json [FILE]]

Both get the same cases, the same configurations and an empty Triton cache, each in a process of
its own, started here and timed to its end. Then, on our measurements, what each chose per launch
is compared: the last figure is the geometric mean of (time of our tree's choice / time of
triton.autotune's choice). Needs a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks._figures import Figure, environment, report
from benchmarks.subjects import NAMES, subject
from kernel_builder.tuning import machine
from kernel_builder.tuning.build import build_tree, newest_context
from kernel_builder.tuning.collect import OpenSite, one_thread
from kernel_builder.tuning.evaluate import chooser
from kernel_builder.tuning.fit import FitOptions
from kernel_builder.tuning.log import Measurements
from kernel_builder.tuning.matrix import Matrix, Point, config_key, geomean
from kernel_builder.tuning.measure import MeasureRequest, measure
from kernel_builder.tuning.workloads import Workloads
from kernelhub.errors import TuningError

SPEED_TARGET = 5.0
QUALITY_TARGET = 1.02


def some_cases(workloads: Workloads, count: int) -> list[str]:
    """Names of cases, evenly spread over the list; the same in every process."""
    names = list(workloads.by_name)
    step = max(1, len(names) / count)
    return [names[int(i * step)] for i in range(min(count, len(names)))]


def narrowed(path: Path, count: int, folder: Path) -> Path:
    """A workload file that has only some of another's cases, all of them to be fitted."""
    text = (
        f"from dataclasses import replace\n"
        f"from pathlib import Path\n"
        f"from benchmarks.tuning_time import some_cases\n"
        f"from kernel_builder.tuning import Case\n"
        f"from kernel_builder.tuning.workloads import load_workloads\n"
        f"_all = load_workloads(Path({str(path)!r}))\n"
        f"_wanted = set(some_cases(_all, {count}))\n"
        f"for _owner in _all.workloads:\n"
        f"    _cases = tuple(Case(c.name, **c.parameters) for c in _owner.cases\n"
        f"                   if f'{{_owner.name}}/{{c.name}}' in _wanted)\n"
        f"    if _cases:\n"
        f"        globals()[_owner.name] = replace(_owner, cases=_cases)\n"
    )
    file = folder / "workloads.py"
    file.write_text(text)
    return file


def tune_ours(name: str, workloads: Path, folder: Path) -> None:
    """Measure and build, as the command does."""
    chosen = subject(name)
    site = replace(chosen.site, workloads=str(workloads))
    request = MeasureRequest(kernels=chosen.kernels, allow_unstable=True)
    with machine.running(machine.device_runners(site, 1, "warm")) as runners:
        measured, _ = measure(runners, folder, request)
    for item in measured:
        found = Measurements.read(item.path)
        build_tree(found, item.context, FitOptions())


def tune_theirs(name: str, workloads: Path) -> dict[str, Any]:
    """Call every case and let triton.autotune benchmark; returns its choices by case and kernel."""
    import torch
    from triton.runtime.autotuner import Autotuner

    chosen = subject(name)
    site = OpenSite(replace(chosen.site, workloads=str(workloads)), "cuda:0", bind=False)
    autotuners = {}
    for module_name, module in sorted(sys.modules.items()):
        if module_name.partition(".")[0] != chosen.site.package.partition(".")[0]:
            continue
        for value in vars(module).values():
            while hasattr(value, "fn") and not isinstance(value, Autotuner):
                value = value.fn
            if isinstance(value, Autotuner):
                autotuners[value.base_fn.__name__] = value
    choices: dict[str, dict[str, Any]] = {}
    for case_name, workload, case in site.workloads:
        args, kwargs = workload.arguments(case, "cuda:0")
        before = {kernel: len(a.cache) for kernel, a in autotuners.items()}
        with one_thread():
            workload.call(*args, **kwargs)
        torch.cuda.synchronize()
        choices[case_name] = {
            kernel: dict(autotuner.best_config.all_kwargs())
            for kernel, autotuner in autotuners.items()
            if len(autotuner.cache) > before[kernel]
        }
    return choices


def timed(*arguments: str, limit: float) -> tuple[float, str]:
    """Seconds and output of a part of this script, with an empty Triton cache."""
    with tempfile.TemporaryDirectory() as cache:
        start = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.tuning_time", *arguments],
            env={**os.environ, "TRITON_CACHE_DIR": cache},
            stdout=subprocess.PIPE,
            text=True,
            timeout=limit,
            check=True,
        )
        return time.perf_counter() - start, done.stdout


def quality(folder: Path, choices: dict[str, dict[str, Any]]) -> tuple[list[float], list[float]]:
    """Per launch: our choice over theirs, and theirs over the best, on our measurements."""
    ratios, theirs_over_best = [], []
    for path in sorted(folder.glob("*.jsonl")):
        found = Measurements.read(path)
        context = newest_context(found, None)
        matrix = found.matrix(context)
        tree = build_tree(found, context, FitOptions()).tree
        choose = chooser(tree.root, tree.configs)
        for point in matrix.points:
            theirs = choices[point.case].get(context.kernel.rpartition(".")[2])
            ms = None if theirs is None else _time(matrix, point, theirs)
            mine = _time(matrix, point, dict(choose(point.features)))
            best = matrix.best(point)
            if ms and mine and best:
                ratios.append(mine / ms)
                theirs_over_best.append(ms / best)
    return ratios, theirs_over_best


def _time(matrix: Matrix, point: Point, config: dict[str, Any]) -> float | None:
    wanted = {name: value for name, value in config.items() if value is not None}
    for candidate in matrix.configs:
        same = {name: value for name, value in candidate.items() if value is not None}
        if config_key(same) == config_key(wanted):
            cell = matrix.cell(point, candidate)
            return None if cell is None else cell.ms
    return None


def run(name: str, cases: int, limit: float) -> tuple[list[Figure], dict[str, list[float]]]:
    """The figures and their raw samples."""
    if not machine.gpu_count():
        raise TuningError("this benchmark needs a GPU")
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        workloads = narrowed(Path(subject(name).site.workloads), cases, folder)
        common = ("--subject", name, "--workloads", str(workloads))
        ours, _ = timed("--part", "ours", *common, "--folder", text, limit=limit)
        print(f"kernelhub: {ours:.1f} s", file=sys.stderr, flush=True)
        theirs, output = timed("--part", "theirs", *common, limit=limit)
        print(f"triton.autotune: {theirs:.1f} s", file=sys.stderr, flush=True)
        ratios, over_best = quality(folder, json.loads(output.splitlines()[-1]))
    note = f"{cases} cases, every process from start to end, empty Triton cache"
    found = [
        Figure(
            name=f"tuning time: {name}",
            value=round(theirs / ours, 2),
            unit="x less wall time",
            target=SPEED_TARGET,
            at_least=True,
            peer="triton.autotune",
            note=f"{note}; {ours:.1f} s against {theirs:.1f} s",
        ),
        Figure(
            name=f"tuning quality: {name}",
            value=round(geomean(ratios), 4),
            unit="x of the time of triton.autotune's choice",
            target=QUALITY_TARGET,
            peer="triton.autotune",
            note=f"{len(ratios)} launches, worst {max(ratios):.3f}; triton.autotune's own choice "
            f"takes {geomean(over_best):.4f}x of the best measured",
        ),
    ]
    return found, {"ours_s": [ours], "theirs_s": [theirs], "ratios": ratios}


def main() -> None:
    parser = argparse.ArgumentParser(description="Time to tune, against triton.autotune.")
    parser.add_argument("--subject", choices=sorted(NAMES), default="rms-norm")
    parser.add_argument("--cases", type=int, default=6)
    parser.add_argument("--limit", type=float, default=300, help="seconds for each side")
    parser.add_argument("--json", nargs="?", const="-", metavar="FILE", help="print or write JSON")
    parser.add_argument("--part", choices=["ours", "theirs"], help=argparse.SUPPRESS)
    parser.add_argument("--workloads", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part == "ours":
        tune_ours(options.subject, options.workloads, options.folder)
    elif options.part == "theirs":
        print(json.dumps(tune_theirs(options.subject, options.workloads)))
    else:
        found, samples = run(options.subject, options.cases, options.limit)
        report(found, to=options.json, environment=environment(), samples=samples)


if __name__ == "__main__":
    main()
