"""Wall time to tune some shapes: `kernel-builder tune` against `triton.autotune`, same run.

    python -m benchmarks.tuning_time [--subject matmul] [--cases 24] [--limit 240] [--json [FILE]]

Both get the same cases, the same configurations and an empty Triton cache, each in a process of
its own, started here and timed to its end. A side that is not done after --limit seconds is ended:
if it is triton.autotune, the ratio is then a lower bound, and says so. On our measurements, what
each chose per launch is compared: the last figure is the geometric mean of (time of our tree's
choice / time of triton.autotune's choice), over the cases that triton.autotune got to. The file is
written anew as each side ends. With --alone only our side runs. Where its time went is among the
samples: seconds from the start of the process to the start of each stage. Needs a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks._report import Figure, Report, arguments, emit
from benchmarks.subjects import NAMES, subject
from kernel_builder.tuning import machine
from kernel_builder.tuning.account import account
from kernel_builder.tuning.build import build_tree, newest_context
from kernel_builder.tuning.collect import OpenSite, one_thread
from kernel_builder.tuning.evaluate import ranker
from kernel_builder.tuning.fit import FitOptions
from kernel_builder.tuning.log import Measurements
from kernel_builder.tuning.matrix import Matrix, Point, config_key, geomean
from kernel_builder.tuning.measure import MeasureRequest, measure
from kernel_builder.tuning.workloads import Workloads, load_workloads
from kernelhub.errors import TuningError
from kernelhub.reporter import Reporter

SPEED_TARGET = 5.0
QUALITY_TARGET = 1.02


def some_cases(workloads: Workloads, count: int) -> list[str]:
    """Names of cases, evenly spread over the list."""
    names = list(workloads.by_name)
    step = max(1, len(names) / count)
    return [names[int(i * step)] for i in range(min(count, len(names)))]


def narrowed(path: Path, count: int, folder: Path) -> Path:
    """A workload file that has only some of another's cases, all of them to be fitted.

    It imports no more than a project's own would.
    """
    wanted = some_cases(load_workloads(path), count)
    text = (
        f"from dataclasses import replace\n"
        f"from pathlib import Path\n"
        f"from kernel_builder.tuning import Case\n"
        f"from kernel_builder.tuning.workloads import load_workloads\n"
        f"_wanted = {wanted!r}\n"
        f"for _owner in load_workloads(Path({str(path)!r})).workloads:\n"
        f"    _cases = tuple(Case(c.name, **c.parameters) for c in _owner.cases\n"
        f"                   if f'{{_owner.name}}/{{c.name}}' in _wanted)\n"
        f"    if _cases:\n"
        f"        globals()[_owner.name] = replace(_owner, cases=_cases)\n"
    )
    file = folder / "workloads.py"
    file.write_text(text)
    return file


class Stages(Reporter):
    """When each stage began, by `time.time`."""

    def __init__(self) -> None:
        self.began = {"imported": time.time()}

    def stage(self, name: str, total: int | None = None, unit: str = "") -> None:
        self.began[name] = time.time()


def tune_ours(name: str, workloads: Path, folder: Path) -> dict[str, float]:
    """Measure and build, as the command does; says on standard error where the time went.

    Returns:
        When each stage began, by `time.time`.
    """
    started = time.monotonic()
    stages = Stages()
    chosen = subject(name)
    site = replace(chosen.site, workloads=str(workloads))
    request = MeasureRequest(kernels=chosen.kernels, allow_unstable=True)
    with machine.running(machine.device_runners(site, 1, "warm")) as runners:
        measured, progress = measure(runners, folder, request, stages, started=started)
        stages.stage("close")
    print(account(progress, measured), file=sys.stderr, flush=True)
    stages.stage("build")
    for item in measured:
        found = Measurements.read(item.path)
        build_tree(found, item.context, FitOptions())
    stages.stage("end")
    return stages.began


def tune_theirs(name: str, workloads: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Call every case and let triton.autotune benchmark; gives its choices by kernel as it goes."""
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
    for case_name, workload, case in site.workloads:
        args, kwargs = workload.arguments(case, "cuda:0")
        before = {kernel: len(a.cache) for kernel, a in autotuners.items()}
        with one_thread():
            workload.call(*args, **kwargs)
        torch.cuda.synchronize()
        yield (
            case_name,
            {
                kernel: dict(autotuner.best_config.all_kwargs())
                for kernel, autotuner in autotuners.items()
                if len(autotuner.cache) > before[kernel]
            },
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side's run: when it began by `time.time`, seconds, standard output, and whether it came
    to its end."""

    began: float
    seconds: float
    output: str
    finished: bool


def timed(*arguments: str, limit: float) -> Side:
    """A part of this script, run with an empty Triton cache."""
    with tempfile.TemporaryDirectory() as cache, tempfile.TemporaryFile("w+") as output:
        start, began = time.perf_counter(), time.time()
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.tuning_time", *arguments],
            env={**os.environ, "TRITON_CACHE_DIR": cache},
            stdout=output,
        )
        finished = False
        try:
            code = process.wait(timeout=limit)
            finished = True
        except subprocess.TimeoutExpired:
            code = 0
        finally:
            seconds = time.perf_counter() - start
            process.kill()
            process.wait()
        if code:
            raise subprocess.CalledProcessError(code, process.args)
        output.seek(0)
        return Side(began=began, seconds=seconds, output=output.read(), finished=finished)


def quality(folder: Path, choices: dict[str, dict[str, Any]]) -> tuple[list[float], list[float]]:
    """Per launch: our choice over theirs, and theirs over the best, on our measurements."""
    ratios, theirs_over_best = [], []
    for path in sorted(folder.glob("*.jsonl")):
        found = Measurements.read(path)
        context = newest_context(found, None)
        matrix = found.matrix(context)
        tree = build_tree(found, context, FitOptions()).tree
        rank = ranker(tree.root, tree.configs)
        for point in matrix.points:
            theirs = choices.get(point.case, {}).get(context.kernel.rpartition(".")[2])
            ms = None if theirs is None else _time(matrix, point, theirs)
            mine = _time(matrix, point, dict(matrix.runs(point, rank(point.features))))
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


def run(
    name: str,
    cases: int,
    limit: float,
    alone: bool,
    show: Callable[[list[Figure], dict[str, Any]], None],
) -> None:
    """Run both sides; `show` is called with the figures and raw samples there are, twice."""
    if not machine.gpu_count():
        raise TuningError("this benchmark needs a GPU")
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        workloads = narrowed(Path(subject(name).site.workloads), cases, folder)
        common = ("--subject", name, "--workloads", str(workloads))
        ours = timed("--part", "ours", *common, "--folder", text, limit=limit)
        end = "" if ours.finished else ", not finished"
        print(f"kernelhub: {ours.seconds:.1f} s{end}", file=sys.stderr, flush=True)
        note = f"{cases} cases, every process from start to end, empty Triton cache"
        own = Figure(
            name=f"tuning time: {name}, kernelhub",
            value=round(ours.seconds, 1),
            unit="s",
            note=note + end,
        )
        samples: dict[str, Any] = {"ours_s": [ours.seconds]}
        if ours.finished:
            stages = json.loads(ours.output)
            samples["ours_stages_s"] = {k: round(v - ours.began, 2) for k, v in stages.items()}
        show([own], samples)
        if alone or not ours.finished:
            return
        theirs = timed("--part", "theirs", *common, limit=limit)
        choices = dict(json.loads(line) for line in theirs.output.splitlines())
        cut = "" if theirs.finished else f", cut after {len(choices)} of {cases} cases"
        print(f"triton.autotune: {theirs.seconds:.1f} s{cut}", file=sys.stderr, flush=True)
        samples["theirs_s"] = [theirs.seconds]
        found = [own, speed(name, ours, theirs, note + cut)]
        ratios, over_best = quality(folder, choices)
        if ratios:
            samples["ratios"] = ratios
            found.append(choice(name, ratios, over_best))
        show(found, samples)


def speed(name: str, ours: Side, theirs: Side, note: str) -> Figure:
    """How many times less wall time."""
    bound = "" if theirs.finished else "; a lower bound"
    return Figure(
        name=f"tuning time: {name}",
        value=round(theirs.seconds / ours.seconds, 2),
        unit="x less wall time",
        target=SPEED_TARGET,
        at_least=True,
        peer="triton.autotune",
        note=f"{note}; {ours.seconds:.1f} s against {theirs.seconds:.1f} s{bound}",
    )


def choice(name: str, ratios: list[float], over_best: list[float]) -> Figure:
    """How good our choice is beside theirs."""
    return Figure(
        name=f"tuning quality: {name}",
        value=round(geomean(ratios), 4),
        unit="x of the time of triton.autotune's choice",
        target=QUALITY_TARGET,
        peer="triton.autotune",
        note=f"{len(ratios)} launches, worst {max(ratios):.3f}; triton.autotune's own choice "
        f"takes {geomean(over_best):.4f}x of the best measured",
    )


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--subject", choices=sorted(NAMES), default="matmul")
    parser.add_argument("--cases", type=int, default=24)
    parser.add_argument("--limit", type=float, default=240, help="seconds for each side")
    parser.add_argument("--alone", action="store_true", help="do not run triton.autotune")
    parser.add_argument("--part", choices=["ours", "theirs"], help=argparse.SUPPRESS)
    parser.add_argument("--workloads", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part == "ours":
        print(json.dumps(tune_ours(options.subject, options.workloads, options.folder)))
    elif options.part == "theirs":
        for case in tune_theirs(options.subject, options.workloads):
            print(json.dumps(case), flush=True)
    else:

        def show(found: list[Figure], samples: dict[str, Any]) -> None:
            title = "Time to tune, against triton.autotune"
            emit(Report(title=title, figures=found, samples=samples), options)

        run(options.subject, options.cases, options.limit, options.alone, show)


if __name__ == "__main__":
    main()
