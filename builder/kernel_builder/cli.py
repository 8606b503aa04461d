"""The `kernel-builder` command: names of its commands. Exit codes are those of `kernelhub`."""

from __future__ import annotations

import sys

import click

from kernelhub._version import __version__
from kernelhub.cli import LazyGroup, run

# In the order of an author's work, which `--help` keeps.
HOMES: dict[str, tuple[str, str, str]] = {
    "init": ("kernel_builder.cli_init", "command", "Start a project that builds, tests and runs."),
    "check": ("kernel_builder.cli_check", "command", "Find every fault, with place and remedy."),
    "build": ("kernel_builder.cli_build", "command", "Build every variant, reproducibly."),
    "tune": ("kernel_builder.cli_tune", "command", "Measure configurations and build trees."),
    "evaluate": ("kernel_builder.cli_evaluate", "command", "Score the trees that ship."),
    "publish": (
        "kernel_builder.cli_publish",
        "command",
        "Publish the build, one commit per branch.",
    ),
    "sign": ("kernel_builder.cli_sign", "command", "Sign what was built."),
    "card": ("kernel_builder.cli_card", "command", "Print or write the kernel's card."),
    "migrate": ("kernel_builder.cli_formats", "migrate", "Bring an older build.toml to edition 5."),
    "schema": ("kernel_builder.cli_formats", "schema", "Print or write the JSON Schemas of files."),
}


@click.group(cls=LazyGroup, homes=HOMES)
@click.version_option(__version__, prog_name="kernel-builder")
def group() -> None:
    """Check, build, tune and publish noarch kernels."""


def main() -> None:
    """Entry point of the `kernel-builder` script."""
    sys.exit(run(group))
