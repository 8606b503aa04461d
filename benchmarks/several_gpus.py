"""Wall time to measure one subject on one GPU of this machine and on several, same run.

    python -m benchmarks.several_gpus [--subject matmul] [--gpus 2] [--limit 60] [--json [FILE]]

Both begin with no measurements; what the first one compiled is there for the second one, so one GPU
is measured twice and the second time counts. Needs several equal GPUs.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from benchmarks._report import Figure, Report, arguments, emit, environment
from benchmarks.subjects import NAMES, subject
from kernel_builder.tuning import machine
from kernel_builder.tuning.measure import MeasureRequest, measure
from kernel_builder.tuning.plan import MeasureOptions, Progress


def measured(name: str, gpus: int, limit: float) -> tuple[float, Progress]:
    """Seconds from start to end on this many GPUs, and how the run ended."""
    chosen = subject(name)
    request = MeasureRequest(
        kernels=chosen.kernels, allow_unstable=True, options=MeasureOptions(budget=limit)
    )
    started = time.monotonic()
    with (
        tempfile.TemporaryDirectory() as folder,
        machine.running(machine.device_runners(chosen.site, gpus, "warm")) as runners,
    ):
        _, progress = measure(runners, Path(folder), request, started=started)
    return time.monotonic() - started, progress


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--subject", choices=sorted(NAMES), default="matmul")
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--limit", type=float, default=60, help="seconds for each run")
    options = parser.parse_args()
    figures, seconds = [], {}
    for what, gpus in (("to fill the cache", 1), ("", 1), ("", options.gpus)):
        took, progress = measured(options.subject, gpus, options.limit)
        name = f"measure {options.subject}, {gpus} GPU{'s' * (gpus > 1)} {what}".strip()
        end = "" if progress.finished else "; the limit ended it"
        note = f"{progress.measured} results{end}"
        figures.append(Figure(name=name, value=round(took, 1), unit="s", note=note))
        seconds[name] = [took]
    figures.append(
        Figure(
            name=f"measure {options.subject}: 1 GPU / {options.gpus} GPUs",
            value=round(figures[1].value / figures[2].value, 2),
            unit="x less wall time",
        )
    )
    facts = environment(device=subject_device(options.subject))
    title = "Time to measure on one and on several GPUs"
    emit(Report(title=title, figures=figures, environment=facts, samples=seconds), options)


def subject_device(name: str) -> str:
    """The GPU's name."""
    with machine.running(machine.device_runners(subject(name).site, 1, "warm")) as runners:
        return runners[0].station.device.name


if __name__ == "__main__":
    main()
