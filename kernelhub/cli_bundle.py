"""`kernelhub bundle`, `kernelhub unbundle`: carry locked kernels to a machine with no network."""

from __future__ import annotations

import json
from pathlib import Path

import click

from . import settings
from .bundling import write_bundle
from .cli_lock import current_lock, files_option, json_option, open_project, platform_option
from .cli_lock import project_option as _project
from .cli_text import amount, count
from .formats.lock import NAME
from .locks import project_lock, read_lock
from .policies import rules
from .store import Store
from .syncing import refuse_gaps, sync
from .unbundling import read_bundle


@click.command()
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("kernels.tar"),
    show_default=True,
    help="The file to write.",
)
@_project
@files_option
@platform_option
@click.option("--frozen", is_flag=True, help="Fail if the lock does not match the requirements.")
@json_option
def bundle(
    output: Path,
    project: Path | None,
    files: tuple[Path, ...],
    platforms: tuple[str, ...],
    frozen: bool,
    as_json: bool,
) -> None:
    """Write every locked kernel into one file; the same kernels give the same bytes."""
    work = open_project(project, files)
    made = current_lock(work, frozen=frozen)
    synced = sync(made, work.store, work.way, rules(settings.current()), platforms=platforms)
    refuse_gaps(synced)
    variants, size = write_bundle(output, made, synced, work.store, work.way)
    if as_json:
        click.echo(json.dumps({"bundle": str(output), "variants": variants, "bytes": size}))
        return
    held = f"{count(variants, 'variant')} of {count(len(made.kernels), 'kernel')}"
    click.echo(f"{output}: {held}, {amount(size)}")


@click.command()
@click.argument("path", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--project",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of the project whose lock the bundle has to match.",
)
@click.option("--no-lock", is_flag=True, help="Do not hold the bundle to the project's lock.")
@json_option
def unbundle(path: Path, project: Path | None, no_lock: bool, as_json: bool) -> None:
    """Verify a bundle and put its kernels where loads find them, with no network.

    A bundle gives no consent to run its kernels: a lock, a signature or trust_remote_code does.
    Where no lock pins them, policies count once the Hub itself has listed their files.
    """
    now = settings.current()
    own, counts = None, True
    if project is not None and not no_lock:
        own = read_lock(project / NAME)
    elif not no_lock and (found := project_lock(now)) is not None:
        own, counts = found.lock, found.consents
    unbundled = read_bundle(path, Store(now.cache, now.endpoint), own=own, own_counts=counts)
    if as_json:
        rows = [
            {
                "repo_id": item.kernel.repo_id,
                "commit": item.kernel.commit,
                "variant": item.variant,
                "folder": str(item.folder),
            }
            for item in unbundled
        ]
        click.echo(json.dumps({"bundle": str(path), "variants": rows}))
        return
    for item in unbundled:
        click.echo(f"{item.kernel.repo_id}  {item.kernel.commit[:12]}  {item.variant}")
    held = "held to the project's lock" if own is not None else "no lock to hold it to"
    click.echo(f"{count(len(unbundled), 'variant')} for {now.endpoint} in {now.cache} ({held})")
