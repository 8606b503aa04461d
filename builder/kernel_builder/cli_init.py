"""`kernel-builder init`."""

from __future__ import annotations

from pathlib import Path

import click

from .init import LANGUAGES, start_project


@click.command("init")
@click.argument("name")
@click.option(
    "--language",
    type=click.Choice(list(LANGUAGES)),
    default="triton",
    show_default=True,
    help="What the kernel is written in.",
)
@click.option(
    "--path",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of the project. Default: ./NAME.",
)
def command(name: str, language: str, path: Path | None) -> None:
    """Start the project of a kernel called NAME: it builds, checks and passes its tests."""
    folder = start_project(name, language, path)
    click.echo(f"wrote {folder}")
    click.echo("next: kernel-builder check, kernel-builder build, pytest, in that folder")
