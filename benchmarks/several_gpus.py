"""Wall time to measure one subject on one GPU of this machine and on several, same run.

    python -m benchmarks.several_gpus [--subject matmul] [--cases 60] [--gpus 2] [--json [FILE]]

Every run begins with no measurements and goes through to its end. The first, on all the GPUs, fills
the compile cache and does not count. Needs several equal GPUs; with --rehearse modelled ones do.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks._report import Figure, Report, arguments, emit, environment
from benchmarks.subjects import NAMES, subject
from benchmarks.tuning_time import Stages, narrowed
from kernel_builder.tuning import machine
from kernel_builder.tuning.measure import MeasureRequest, measure
from kernel_builder.tuning.plan import MeasureOptions
from kernel_builder.tuning.runners.process import ProcessRunner


@dataclass(frozen=True, slots=True, kw_only=True)
class Took:
    """One run: seconds from start to end, of that after the launches were found, results, whether
    it was whole."""

    seconds: float
    measuring: float
    results: int
    finished: bool
    device: str


def measured(
    runners: Callable[[], list[ProcessRunner]], kernels: tuple[str, ...], limit: float
) -> Took:
    """Measure on these runners, from nothing."""
    request = MeasureRequest(
        kernels=kernels, allow_unstable=True, options=MeasureOptions(budget=limit)
    )
    started, stages = time.monotonic(), Stages()
    with tempfile.TemporaryDirectory() as folder, machine.running(runners()) as running:
        _, progress = measure(running, Path(folder), request, stages, started=started)
        measuring = time.time() - stages.began["measure"]
        device = running[0].station.device.name
    return Took(
        seconds=time.monotonic() - started,
        measuring=measuring,
        results=progress.measured,
        finished=progress.finished,
        device=device,
    )


def rehearsed(gpus: int) -> list[ProcessRunner]:
    """Modelled devices that take their time."""
    launches = [
        {"kernel": "mm", "source": "", "point": str(m), "case": f"M={m}",
         "features": {"M": m, "N": 4096, "K": 4096}, "weight": 1.0, "held_out": False,
         "candidates": [{"BM": bm, "BN": bn} for bm in (32, 64, 128) for bn in (32, 64, 128)]}
        for m in range(256, 4096, 256)
    ]  # fmt: skip
    return [ProcessRunner("model", {"launches": launches, "seconds": 0.01}) for _ in range(gpus)]


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--subject", choices=sorted(NAMES), default="matmul")
    parser.add_argument("--cases", type=int, default=60)
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--limit", type=float, default=60, help="seconds for each run")
    parser.add_argument("--rehearse", action="store_true", help="on modelled devices")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as text:
        chosen = subject(options.subject)
        workloads = narrowed(Path(chosen.site.workloads), options.cases, Path(text))
        site = replace(chosen.site, workloads=str(workloads))

        def runners(gpus: int) -> list[ProcessRunner]:
            return (
                rehearsed(gpus) if options.rehearse else machine.device_runners(site, gpus, "warm")
            )

        first, one, many = (
            measured(lambda gpus=gpus: runners(gpus), chosen.kernels, options.limit)  # type: ignore[misc]
            for gpus in (options.gpus, 1, options.gpus)
        )
    what = f"measure {options.subject}, {options.cases} cases"
    figures = [
        _figure(f"{what}, to fill the cache", first),
        _figure(f"{what}, 1 GPU", one),
        _figure(f"{what}, {options.gpus} GPUs", many),
        Figure(
            name=f"{what}: 1 GPU / {options.gpus} GPUs",
            value=round(one.seconds / many.seconds, 2),
            unit="x less wall time",
            note=f"from start to end; {one.measuring / many.measuring:.2f} after the launches are "
            "found",
        ),
    ]
    emit(
        Report(
            title="Time to measure on one and on several GPUs",
            figures=figures,
            environment=environment(device=one.device),
            samples={"seconds": [first.seconds, one.seconds, many.seconds]},
        ),
        options,
    )


def _figure(name: str, took: Took) -> Figure:
    end = "" if took.finished else "; the limit ended it"
    note = f"{took.results} results in {took.measuring:.1f} s after the launches were found{end}"
    return Figure(name=name, value=round(took.seconds, 1), unit="s", note=note)


if __name__ == "__main__":
    main()
