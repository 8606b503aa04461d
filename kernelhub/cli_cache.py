"""`kernelhub cache list|prune|repair` and `kernelhub verify`: the kernels on this disk."""

from __future__ import annotations

import json
import time
from pathlib import Path

import click

from . import auditing, settings
from .cli import EXIT_FAULTS
from .cli_lock import json_option, project_option
from .cli_text import amount, count
from .disk import DAY
from .formats.lock import NAME, Lock
from .locks import project_lock, read_lock
from .policies import rules
from .store import Store
from .ways import way_of


@click.group()
def cache() -> None:
    """Look at the kernels on this disk, remove old ones, replace damaged ones."""


@cache.command("list")
@json_option
def cache_list(as_json: bool) -> None:
    """List the variants that are complete on this disk."""
    now = settings.current()
    rows = [
        {
            "hub": hub,
            "repo_id": stored.receipt.repo_id,
            "commit": stored.receipt.commit,
            "variant": stored.receipt.variant,
            "bytes": stored.receipt.size,
            "installed": stored.receipt.installed,
            "folder": str(stored.folder),
        }
        for hub, stored in Store(now.cache, now.endpoint).everything()
    ]
    if as_json:
        click.echo(json.dumps({"cache": str(now.cache), "variants": rows}))
        return
    for row in rows:
        day = time.strftime("%Y-%m-%d", time.localtime(float(str(row["installed"]))))
        click.echo(
            f"{row['repo_id']}  {str(row['commit'])[:12]}  {row['variant']}"
            f"  {amount(int(str(row['bytes'])))}  {day}  {row['hub']}"
        )
    click.echo(f"{count(len(rows), 'variant')} in {now.cache}")


@cache.command("prune")
@click.option(
    "--older-than",
    type=click.FloatRange(min=0),
    default=30.0,
    show_default=True,
    metavar="DAYS",
    help="Remove what was installed before then.",
)
@click.option("--all", "everything", is_flag=True, help="Whatever its age.")
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@json_option
def cache_prune(older_than: float, everything: bool, dry_run: bool, as_json: bool) -> None:
    """Remove old variants, and what ended processes left. What the project's lock pins is kept."""
    now = settings.current()
    removed = auditing.prune(
        Store(now.cache, now.endpoint),
        _lock(now),
        older_than=older_than * DAY,
        everything=everything,
        dry_run=dry_run,
    )
    total = sum(item.size for item in removed)
    if as_json:
        rows = [{"path": str(r.path), "bytes": r.size, "why": r.why} for r in removed]
        click.echo(json.dumps({"removed": rows, "bytes": total, "dry_run": dry_run}))
        return
    for item in removed:
        click.echo(f"{item.path}  {amount(item.size)}  ({item.why})")
    click.echo(f"{len(removed)} {'would be removed' if dry_run else 'removed'}, {amount(total)}")


@cache.command("repair")
@json_option
def cache_repair(as_json: bool) -> int:
    """Check every variant and download again what is damaged.

    What cannot be had again is removed, since a load would refuse it; exits with 3 then.
    """
    now = settings.current()
    found = auditing.repair(Store(now.cache, now.endpoint), now.endpoint, way_of(now), _lock(now))
    failed = [item for item in found if item.error]
    if as_json:
        rows = [
            {
                "repo_id": item.stored.receipt.repo_id,
                "commit": item.stored.receipt.commit,
                "variant": item.stored.receipt.variant,
                "fault": item.fault,
                "error": item.error or None,
            }
            for item in found
        ]
        click.echo(json.dumps({"damaged": rows}))
        return EXIT_FAULTS if failed else 0
    for item in found:
        receipt = item.stored.receipt
        click.echo(f"{receipt.repo_id}  {receipt.commit[:12]}  {receipt.variant}: {item.fault}")
        click.echo(f"  {item.error or 'downloaded again'}")
    click.echo(f"{len(found)} damaged, {len(found) - len(failed)} repaired")
    return EXIT_FAULTS if failed else 0


@click.command()
@project_option
@click.option("--no-lock", is_flag=True, help="Do not hold kernels to a lock.")
@json_option
def verify(project: Path | None, no_lock: bool, as_json: bool) -> int:
    """Check every kernel on this disk against its digest, its signature and the lock.

    Exits with 3 if something is wrong. `kernelhub cache repair` replaces what is damaged.
    """
    now = settings.current()
    held = None if no_lock else _lock_of(project)
    store = Store(now.cache, now.endpoint)
    found = list(auditing.audit(store, rules(now), held, offline=now.offline))
    gaps = auditing.missing(store, held) if held is not None else ()
    faults = [item for item in found if item.fault]
    if as_json:
        rows = [_audit(item) for item in found]
        absent = [f"{kernel.repo_id}@{kernel.commit}" for kernel in gaps]
        click.echo(json.dumps({"variants": rows, "missing": absent}))
        return EXIT_FAULTS if faults else 0
    for item in found:
        receipt = item.stored.receipt
        state = "FAULT" if item.fault else "ok"
        click.echo(
            f"{state:<5}  {receipt.repo_id}  {receipt.commit[:12]}  {receipt.variant}"
            f"  {'locked' if item.locked else 'not locked'}  signature: {item.signature}"
        )
        if item.fault:
            click.echo("       " + item.fault.replace("\n", "\n       "))
    for kernel in gaps:
        click.echo(f"absent {kernel.repo_id}  {kernel.commit[:12]}: `kernelhub sync` fetches it")
    click.echo(f"{count(len(found), 'variant')}, {len(faults)} with faults")
    return EXIT_FAULTS if faults else 0


def _lock_of(project: Path | None) -> Lock | None:
    if project is not None:
        return read_lock(project / NAME)
    return _lock(settings.current())


def _lock(now: settings.Settings) -> Lock | None:
    file = project_lock(now)
    return file.lock if file is not None else None


def _audit(item: auditing.Audit) -> dict[str, object]:
    receipt = item.stored.receipt
    return {
        "hub": item.hub,
        "repo_id": receipt.repo_id,
        "commit": receipt.commit,
        "variant": receipt.variant,
        "locked": item.locked,
        "signature": item.signature,
        "fault": item.fault or None,
    }
