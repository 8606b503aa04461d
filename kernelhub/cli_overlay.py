"""`kernelhub overlay list|remove`: the user's own trees."""

from __future__ import annotations

import json

import click

from .dispatch import overlay
from .settings import current


@click.group("overlay")
def command() -> None:
    """Your own trees: tuned by you, for your devices, kept apart from the kernels."""


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_command(as_json: bool) -> None:
    """Show which kernels and devices you have trees for."""
    found = list(overlay.listing(current().overlays))
    if as_json:
        rows = [
            {"repo_id": o.repo_id, "kernel": o.kernel, "device": o.device, "path": str(o.path)}
            for o in found
        ]
        click.echo(json.dumps(rows, indent=2))
        return
    for one in found:
        click.echo(f"{one.repo_id}  {one.kernel}  {one.device}\n  {one.path}")
    if not found:
        click.echo(f"no overlays in {current().overlays}")


@command.command("remove")
@click.argument("repo_id")
@click.option("--kernel", help="Only this kernel's, by its dotted name.")
@click.option("--device", help='Only this device\'s, as `list` shows it ("nvidia-h200").')
def remove_command(repo_id: str, kernel: str | None, device: str | None) -> None:
    """Delete your trees for REPO_ID (owner/name)."""
    for one in overlay.remove(current().overlays, repo_id, kernel=kernel, device=device):
        click.echo(f"removed {one.path}")
