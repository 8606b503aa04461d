"""`kernelhub versions`, `kernelhub variants`: look before loading."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from .catalogue import explain_variants, published_versions, versions_without_build
from .cli import EXIT_FAILED
from .variants import Choice

_json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


@click.command()
@click.argument("repo_id", metavar="ORG/KERNEL")
@_json_option
def versions(repo_id: str, as_json: bool) -> None:
    """List the versions of a kernel and the commit that each stands at."""
    found = published_versions(repo_id)
    empty = versions_without_build(repo_id, found)
    if as_json:
        facts = {"repo_id": repo_id, "versions": found, "without_build": sorted(empty)}
        click.echo(json.dumps(facts))
        return
    if not found:
        click.echo(f"{repo_id} has no versions")
    for version, commit in found.items():
        marks = ("unstable", version == 0), ("no build", version in empty)
        click.echo("  ".join([f"{version:>4}", commit, *(mark for mark, holds in marks if holds)]))


@click.command()
@click.argument("requirement", metavar="ORG/KERNEL[==VERSION|@REVISION]")
@click.option("--framework", help="torch or jax.")
@click.option("--backend", help="Choose as for this backend in place of the one found.")
@_json_option
def variants(requirement: str, framework: str | None, backend: str | None, as_json: bool) -> int:
    """Show which variant would be taken on this machine, and why not the others.

    Exits with 1 if none would.
    """
    choice = explain_variants(requirement, framework=framework, backend=backend)
    if as_json:
        chosen = choice.chosen.variant if choice.chosen else None
        click.echo(json.dumps({"chosen": chosen, "trace": [asdict(v) for v in choice.trace]}))
    else:
        click.echo(_table(choice))
    return 0 if choice.chosen else EXIT_FAILED


def _table(choice: Choice) -> str:
    if not choice.trace:
        return "no build is published"
    width = max(len(verdict.variant) for verdict in choice.trace)
    lines = [
        f"{'*' if verdict.accepted else ' '} {verdict.variant:<{width}}  {verdict.reason}"
        for verdict in choice.trace
    ]
    legend = "* would be loaded" if choice.chosen else "none runs on this machine"
    return "\n".join([*lines, legend])
