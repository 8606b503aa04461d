"""`kernel-builder build`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from kernelhub.cli_text import amount, count

from .cli_progress import reporting, tidy_termination
from .pack import Built, build
from .project import Project


@click.command("build")
@click.argument("path", type=click.Path(path_type=Path), default=".")
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder to build into, replaced whole. Default: PATH/build.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, no progress.")
def command(path: Path, output: Path | None, as_json: bool) -> None:
    """Build every variant of the project in PATH.

    The same sources give the same bytes on every machine. An interrupted build leaves the previous
    one untouched.
    """
    with tidy_termination(), reporting(silent=as_json) as reporter:
        built = build(Project.open(path), output, reporter=reporter)
    click.echo(json.dumps(_facts(built), indent=2) if as_json else _text(built))


def _facts(built: Built) -> dict[str, object]:
    return {
        "folder": str(built.folder),
        "variants": [
            {
                "name": variant.name,
                "files": len(variant.files) + 1,
                "bytes": sum(file.size for file in variant.files) + len(variant.metadata),
                "id": json.loads(variant.metadata)["id"],
            }
            for variant in built.variants
        ],
        "left_out": list(built.left_out),
    }


def _text(built: Built) -> str:
    lines = [f"built {built.folder}"]
    for variant in built.variants:
        size = sum(file.size for file in variant.files) + len(variant.metadata)
        lines.append(f"  {variant.name}  {count(len(variant.files) + 1, 'file')}, {amount(size)}")
    if built.left_out:
        names = ", ".join(built.left_out)
        lines.append(f"left out (add the suffix to pyext to pack them): {names}")
    return "\n".join(lines)
