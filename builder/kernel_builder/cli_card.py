"""`kernel-builder card`."""

from __future__ import annotations

from pathlib import Path

import click

from kernelhub.errors import StoreError

from .card import make_card, render_card
from .project import Project


@click.command("card")
@click.argument("path", type=click.Path(path_type=Path), default=".")
@click.option("--repo-id", help="Repository, as org/name. Default: general.hub.repo-id.")
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File to write. Default: standard output.",
)
def command(path: Path, repo_id: str | None, output: Path | None) -> None:
    """Show the card that `publish` puts on the Hub for the project in PATH."""
    project = Project.open(path)
    name = repo_id or project.build_file.hub_repo_id or f"ORG/{project.build_file.name}"
    text = render_card(make_card(project, name))
    if output is None:
        click.echo(text.decode(), nl=False)
        return
    try:
        output.write_bytes(text)
    except OSError as error:
        raise StoreError(f"cannot write {output}: {error.strerror}") from error
    click.echo(f"wrote {output}")
