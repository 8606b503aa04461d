"""Measure one subject on this machine's GPUs; what is measured already is not measured again.

python -m benchmarks.tune_subject rms-norm --budget 60
"""

from __future__ import annotations

import argparse
import time

from benchmarks.subjects import NAMES, subject
from kernel_builder.cli_progress import reporting
from kernel_builder.tuning import machine
from kernel_builder.tuning.account import account
from kernel_builder.tuning.measure import MeasureRequest, measure
from kernel_builder.tuning.plan import MeasureOptions


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
    started = time.monotonic()
    runners = machine.device_runners(chosen.site, options.gpus, "warm")
    with machine.running(runners), reporting() as reporter:
        measured, progress = measure(
            runners, chosen.measurements, request, reporter, started=started
        )
    names = ", ".join(item.context.kernel for item in measured)
    print(f"{options.subject}: {names}: {account(progress, measured)}")


if __name__ == "__main__":
    main()
