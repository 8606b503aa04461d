"""`kernel-builder schema` and `kernel-builder migrate`."""

from __future__ import annotations

import difflib
import os
from pathlib import Path

import click

from kernelhub.cli import EXIT_FAULTS
from kernelhub.errors import InputError, StoreError
from kernelhub.formats.build_toml import migrate as migrate_text
from kernelhub.formats.json_schema import NAMES, render
from kernelhub.formats.toml_lines import decode_text

from . import schemas


@click.command("schema")
@click.argument("name", type=click.Choice(NAMES), default=NAMES[0])
@click.option("--output", type=click.Path(path_type=Path), help="Write every schema into a folder.")
@click.option(
    "--check", is_flag=True, help=f"Compare the files in --output (default {schemas.FOLDER})."
)
def schema(name: str, output: Path | None, check: bool) -> int:
    """Print the JSON Schema of a file, write them all, or check files that were written.

    Exits with 3 if --check finds a file that is missing or differs.
    """
    if check:
        return _check(output or Path(schemas.FOLDER))
    if output is None:
        click.echo(render(name), nl=False)
        return 0
    try:
        written = schemas.write(output)
    except OSError as error:
        raise StoreError(f"{output} cannot be written: {error.strerror}") from error
    for path in written:
        click.echo(f"wrote {path}")
    return 0


def _check(folder: Path) -> int:
    try:
        faults = schemas.drift(folder)
    except OSError as error:
        raise InputError(f"{folder} cannot be read: {error.strerror}") from error
    for fault in faults:
        click.echo(fault, err=True)
    if faults:
        click.echo(f"run `kernel-builder schema --output {folder.as_posix()}`", err=True)
        return EXIT_FAULTS
    click.echo(f"{folder}: {len(NAMES)} schemas are up to date")
    return 0


@click.command("migrate")
@click.argument("path", type=click.Path(path_type=Path), default=".")
@click.option("--write", is_flag=True, help="Rewrite the file; without it, show what would change.")
def migrate(path: Path, write: bool) -> int:
    """Bring a build.toml of edition 3 or 4 to edition 5; comments and order are kept.

    PATH is the project's folder or the file itself.
    """
    file = path / "build.toml" if path.is_dir() else path
    old = _read(file)
    new = migrate_text(old, file.name)
    if new == old:
        click.echo(f"{file}: is of edition 5 already, nothing to do")
    elif write:
        _replace(file, new.encode())
        click.echo(f"{file}: rewritten as edition 5")
    else:
        click.echo(_difference(old, new, file.name), nl=False)
        click.echo("nothing was written; run it again with --write", err=True)
    return 0


def _read(file: Path) -> str:
    try:
        data = file.read_bytes()
    except FileNotFoundError as error:
        hint = "name the project's folder, or start one with `kernel-builder init`"
        raise InputError(f"{file} does not exist", hint=hint) from error
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}") from error
    return decode_text(data, file.name)


def _replace(file: Path, data: bytes) -> None:
    """Whoever reads `file` sees the old text or the new one, whatever happens in between."""
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        temporary.write_bytes(data)
        temporary.replace(file)
    except OSError as error:
        raise StoreError(f"{file} cannot be written: {error.strerror}") from error
    finally:
        temporary.unlink(missing_ok=True)


def _difference(old: str, new: str, name: str) -> str:
    lines = difflib.unified_diff(
        old.split("\n"), new.split("\n"), name, f"{name} (edition 5)", lineterm=""
    )
    return "".join(f"{line.rstrip(chr(13))}\n" for line in lines)
