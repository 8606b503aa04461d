"""`kernel-builder check`: prints what `kernel_builder.check` finds."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import click

from kernelhub.cli import EXIT_FAULTS
from kernelhub.errors import KernelHubError, Problem

from .cli_progress import reporting


@click.command()
@click.argument("path", type=click.Path(path_type=Path), default=".")
@click.option("--fix", is_flag=True, help="Rewrite absolute imports of the package itself.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of lines.")
@click.option(
    "--target",
    "targets",
    multiple=True,
    metavar="ARCH",
    help="Compile Triton kernels for sm_90, gfx942, ... instead of what build.toml declares.",
)
@click.option("--no-compile", is_flag=True, help="Do not compile Triton kernels.")
def command(
    path: Path, fix: bool, as_json: bool, targets: tuple[str, ...], no_compile: bool
) -> int:
    """Find every fault of the project at PATH, each with its place and remedy.

    Exit code 3 if there are faults; notes do not count. Exit code 1 if there is no project; with
    --json, `error` then says why. Triton kernels are compiled without a GPU, in processes of their
    own, which import and call the package.
    """
    from .check import check_project

    try:
        with reporting(silent=as_json) as reporter:
            report = check_project(
                path, repair=fix, targets=targets, compiling=not no_compile, reporter=reporter
            )
    except KernelHubError as error:
        if as_json:
            click.echo(json.dumps(_failure(error), indent=2))
        raise
    if as_json:
        data = {
            "ok": not report.faults,
            "faults": [_data(problem) for problem in report.faults],
            "notes": [_data(problem) for problem in report.notes],
            "fixed": list(report.fixed),
        }
        click.echo(json.dumps(data, indent=2))
    else:
        for name in report.fixed:
            click.echo(f"{name}: rewritten")
        for problem in report.faults:
            click.echo(_line(problem))
        for problem in report.notes:
            click.echo(f"note: {_line(problem)}")
        count = len(report.faults)
        click.echo(f"{count} fault{'s' * (count != 1)}" if count else "no faults")
    return EXIT_FAULTS if report.faults else 0


def _failure(error: KernelHubError) -> dict[str, object]:
    """What `--json` prints where nothing could be checked; the keys of a report are there too."""
    facts = {"message": error.message, "hint": error.hint}
    return {"ok": False, "error": facts, "faults": [], "notes": [], "fixed": []}


def _data(problem: Problem) -> dict[str, object]:
    return {key: value for key, value in dataclasses.asdict(problem).items() if value is not None}


def _line(problem: Problem) -> str:
    return f"{problem} [{problem.code}]" if problem.code else str(problem)
