"""`kernel-builder evaluate`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from kernel_builder.cli_tuned import report_facts, report_text
from kernel_builder.tuning.shipped import evaluate_shipped
from kernel_builder.tuning.tune import project_place
from kernelhub.cli import EXIT_FAULTS


@click.command("evaluate")
@click.argument("path", type=click.Path(path_type=Path), default=".")
@click.option("--kernel", "kernels", multiple=True, help="Only this tunable; may be repeated.")
@click.option(
    "--max-slowdown",
    type=click.FloatRange(min=1.0),
    help="Goal, with the meaning that it has in `tune`; misses are then not excused by the "
    "evidence. [default: each tree's own]",
)
@click.option("--framework", type=click.Choice(["torch", "jax"]), help="Which package.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def command(
    path: Path,
    kernels: tuple[str, ...],
    max_slowdown: float | None,
    framework: str | None,
    as_json: bool,
) -> int:
    """Score the trees that the project in PATH ships, as they lie there, against its measurements.

    Exit code 3: a tree misses its goal, and not only as its evidence says.
    """
    place = project_place(path, framework)
    reports = evaluate_shipped(place, kernels, max_slowdown)
    for report in reports:
        click.echo(json.dumps(report_facts(report)) if as_json else report_text(report))
    return EXIT_FAULTS if any(report.new_misses for report in reports) else 0
