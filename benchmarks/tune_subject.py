"""Measure one subject on this machine's GPUs; what is measured already is not measured again.

python -m benchmarks.tune_subject rms-norm --budget 60
"""

from __future__ import annotations

import argparse
import time

from benchmarks.subjects import NAMES, subject
from kernel_builder.cli_progress import reporting
from kernel_builder.tuning import machine
from kernel_builder.tuning.engine import MeasureOptions
from kernel_builder.tuning.measure import MeasureRequest, measure


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure a subject of the tuning benchmarks.")
    parser.add_argument("subject", choices=sorted(NAMES))
    parser.add_argument("--budget", type=float, metavar="SECONDS")
    parser.add_argument("--gpus", type=int)
    options = parser.parse_args()
    chosen = subject(options.subject)
    request = MeasureRequest(
        kernels=chosen.kernels,
        allow_unstable=True,  # the samples are kept; the fit knows their errors
        options=MeasureOptions(budget=options.budget),
    )
    start = time.perf_counter()
    runners = machine.device_runners(chosen.site, options.gpus, "warm")
    with machine.running(runners), reporting() as reporter:
        measured, progress = measure(runners, chosen.measurements, request, reporter)
    names = ", ".join(item.context.kernel for item in measured)
    print(
        f"{options.subject}: {names}: {progress.measured} results in "
        f"{time.perf_counter() - start:.0f} s, {progress.reused} were known, "
        f"{'finished' if progress.finished else 'not finished'}"
    )


if __name__ == "__main__":
    main()
