"""`kernelhub inspect`: what there is to know of a kernel before it is trusted."""

from __future__ import annotations

import json
from typing import Any

import click

from .cli_lock import json_option
from .cli_text import amount, count
from .formats.metadata import metadata_value
from .inspecting import Inspected, inspect
from .locking import needed

_PLACES = 8


@click.command("inspect")
@click.argument("requirement", metavar="ORG/KERNEL[==VERSION|@REVISION]")
@click.option("--variant", help="Which variant to look at. Default: the first by name.")
@json_option
def command(requirement: str, variant: str | None, as_json: bool) -> None:
    """Show who published a kernel, who signed it, what it imports, calls and ships.

    Downloads and verifies it, and runs none of it. What its code seems to do is read off its
    syntax: a help for reading, no proof of harmlessness.
    """
    found = inspect(requirement, variant=variant)
    text = json.dumps(_value(found)) if as_json else "\n".join(map(_printable, _lines(found)))
    click.echo(text)


def _printable(line: str) -> str:
    """Without what a stranger's text could do to a terminal."""
    return "".join(c if c.isprintable() else "?" for c in line)


def _value(found: Inspected) -> dict[str, Any]:
    metadata = metadata_value(found.metadata)
    fields = {name: getattr(found, name) for name in Inspected.__dataclass_fields__}
    return {**fields, "metadata": metadata}


def _lines(found: Inspected) -> list[str]:
    metadata = found.metadata
    marked = {
        True: "marked as trusted by the Hub",
        False: "not marked as trusted by the Hub",
        None: "offline: the Hub was not asked",
    }
    version = f"version {found.version}, " if found.version is not None else ""
    lines = [
        f"{found.repo_id}  {version}commit {found.commit}",
        f"  variant     {found.variant}",
        f"  content     {found.content}",
        f"  publisher   {found.publisher} ({marked[found.hub_trusted]})",
        f"  allowed     {found.allowed}",
        f"  signature   {found.signature}",
        f"  lock        {found.locked}",
        f"  licence     {metadata.license}",
        f"  source      {metadata.source or metadata.upstream or 'not stated'}",
        f"  built by    {_built(found)}",
        f"  digest      {'of every file' if metadata.digest else 'none: built before digests'}",
        f"  imports     {', '.join(found.imports) or 'nothing outside the standard library'}",
        f"  kernels     {', '.join(_needs(found)) or 'none'}",
    ]
    lines.append("  seems to" if found.does else "  seems to    do nothing out of the ordinary")
    for does, places in found.does.items():
        more = f" and {len(places) - _PLACES} more" if len(places) > _PLACES else ""
        lines.append(f"    {does}: {', '.join(places[:_PLACES])}{more}")
    for path, why in found.unread.items():
        lines.append(f"  look at     {path}: {why}")
    total = sum(found.files.values())
    lines.append(f"  ships       {count(len(found.files), 'file')}, {amount(total)}")
    lines += [f"    {path}  {size}" for path, size in found.files.items()]
    return lines


def _built(found: Inspected) -> str:
    provenance = found.metadata.provenance
    if provenance is None:
        return "not stated"
    kernel = provenance.kernel
    text = f"kernel-builder {provenance.kernel_builder.version}"
    if kernel is not None:
        text += f", from commit {kernel.commit[:12]}{' with changes' if kernel.dirty else ''}"
    return text


def _needs(found: Inspected) -> list[str]:
    return [needed(need) for need in found.metadata.kernel_depends]
