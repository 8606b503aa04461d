"""`kernelhub lock` and `kernelhub sync`: pin kernels, and fetch what is pinned."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import click

from . import settings
from .cli import EXIT_FAULTS
from .cli_text import amount, count
from .disk import is_file, reading, translated, write_whole
from .errors import LockError
from .formats.hf_lock import parse_hf_lock, render_hf_lock, render_old_hf_lock
from .formats.lock import NAME, Lock, LockedKernel
from .locking import UPGRADE_ALL, make_lock, mismatches
from .locking_hf import from_hf, to_hf
from .locks import read_lock, write_lock
from .policies import rules
from .requirements import Requirements, collect, project_folder
from .resolution import Way
from .store import Store
from .syncing import Synced, refuse_gaps, sync
from .ways import way_of

project_option = click.option(
    "--project",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of the project. Default: found from the working directory upward.",
)
files_option = click.option(
    "-r",
    "--requirement",
    "files",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="Requirements file to read in place of the project's; may be given again.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
platform_option = click.option(
    "--platform",
    "platforms",
    multiple=True,
    metavar="NAME",
    help="For another machine: a backend (cuda), a variant (torch-cuda) or all; may be given"
    " again. Default: this machine.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A project and what its commands need."""

    requirements: Requirements
    path: Path
    before: Lock | None
    store: Store
    way: Way


def open_project(project: Path | None, files: tuple[Path, ...]) -> Work:
    """The project in which a command runs."""
    now = settings.current()
    folder = project or now.project or (Path.cwd() if files else project_folder(now))
    path = now.lock or folder / NAME
    return Work(
        requirements=collect(folder, files),
        path=path,
        before=read_lock(path) if is_file(path) else None,
        store=Store(now.cache, now.endpoint),
        way=way_of(now),
    )


@click.command()
@project_option
@files_option
@click.option("--upgrade", "-U", multiple=True, metavar="ORG/KERNEL", help="Resolve it anew.")
@click.option("--upgrade-all", is_flag=True, help="Resolve every kernel anew.")
@click.option("--check", is_flag=True, help="Write nothing; exit 3 if the lock does not match.")
@click.option(
    "--from-hf",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Start from the pins of HF's kernels.lock, of either format.",
)
@click.option("--hf", type=click.Path(path_type=Path, dir_okay=False), help="Write HF's too.")
@click.option(
    "--hf-old",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write HF's of the format up to 0.16 too.",
)
@json_option
def lock(
    project: Path | None,
    files: tuple[Path, ...],
    upgrade: tuple[str, ...],
    upgrade_all: bool,
    check: bool,
    from_hf: Path | None,
    hf: Path | None,
    hf_old: Path | None,
    as_json: bool,
) -> int:
    """Pin what the project asks for: commit, and content of each variant, in kernelhub.lock."""
    work = open_project(project, files)
    if check:
        return _check(work, as_json=as_json)
    _refuse_unknown(upgrade, work)
    before = _imported(from_hf, work) if from_hf is not None else work.before
    made = make_lock(
        work.requirements,
        work.store,
        work.way,
        before=before,
        upgrade=UPGRADE_ALL if upgrade_all else upgrade,
    )
    changed = write_lock(work.path, made)
    _warn_of_revoked(made)
    _export(made, work, hf, hf_old)
    if as_json:
        click.echo(json.dumps({"lock": str(work.path), "changed": changed, "kernels": _rows(made)}))
        return 0
    for line in _changes(work.before or Lock(), made):
        click.echo(line)
    click.echo(
        f"{work.path}: {count(len(made.kernels), 'kernel')}{'' if changed else ', unchanged'}"
    )
    return 0


@click.command("sync")
@project_option
@files_option
@platform_option
@click.option("--frozen", is_flag=True, help="Fail if the lock does not match the requirements.")
@json_option
def sync_command(
    project: Path | None,
    files: tuple[Path, ...],
    platforms: tuple[str, ...],
    frozen: bool,
    as_json: bool,
) -> int:
    """Fetch every locked kernel for this machine (or others), and verify it."""
    work = open_project(project, files)
    made = current_lock(work, frozen=frozen)
    synced = sync(made, work.store, work.way, rules(settings.current()), platforms=platforms)
    if as_json:
        click.echo(json.dumps({"lock": str(work.path), "kernels": [_synced(s) for s in synced]}))
    else:
        for item in synced:
            click.echo(_line(item))
    refuse_gaps(synced)
    return 0


def current_lock(work: Work, *, frozen: bool) -> Lock:
    """The project's lock, brought up to its requirements; with `frozen` it has to match as it is.

    Raises:
        LockError: it does not.
    """
    if not frozen:
        made = make_lock(work.requirements, work.store, work.way, before=work.before)
        write_lock(work.path, made)
        return made
    if work.before is None:
        raise LockError(f"{work.path} does not exist", hint="run `kernelhub lock` and commit it")
    if found := mismatches(work.requirements, work.before):
        listed = "".join(f"\n  - {line}" for line in found)
        raise LockError(
            f"{work.path} does not match the requirements:{listed}",
            hint="run `kernelhub lock` and commit the result",
        )
    return work.before


def _check(work: Work, *, as_json: bool) -> int:
    found = mismatches(work.requirements, work.before or Lock())
    if as_json:
        click.echo(json.dumps({"lock": str(work.path), "mismatches": found}))
    else:
        for line in found:
            click.echo(line)
        click.echo(f"{work.path}: {'does not match' if found else 'matches'} the requirements")
    return EXIT_FAULTS if found else 0


def _refuse_unknown(upgrade: tuple[str, ...], work: Work) -> None:
    known = {kernel.repo_id for kernel in (work.before or Lock()).kernels}
    known |= set(work.requirements.by_repository())
    for repo_id in upgrade:
        if repo_id not in known:
            raise LockError(
                f"--upgrade {repo_id}: the project does not ask for it",
                hint=f"it asks for {', '.join(sorted(known)) or 'nothing'}",
            )


def _imported(path: Path, work: Work) -> Lock:
    with reading(path):
        data = path.read_bytes()
    return from_hf(parse_hf_lock(data, str(path)), work.store, work.way)


def _export(made: Lock, work: Work, new: Path | None, old: Path | None) -> None:
    if new is not None:
        with translated(new):
            write_whole(new, render_hf_lock(to_hf(made, work.store, work.way)))
    if old is not None:
        entries = to_hf(made, work.store, work.way, old=True)
        with translated(old):
            write_whole(old, render_old_hf_lock(entries))


def _warn_of_revoked(made: Lock) -> None:
    """A lock is no consent to run what a revoked signer has signed; the files are not here yet."""
    in_force = rules(settings.current())
    for repo_id in dict.fromkeys(kernel.repo_id for kernel in made.kernels):
        if revoked := in_force.all_revoked(repo_id):
            click.echo(
                f"warning: {repo_id}: its signer is revoked ({revoked}); what that has signed does"
                " not run, though it is locked",
                err=True,
            )


def _changes(before: Lock, after: Lock) -> list[str]:
    old = {(k.repo_id, k.commit): k for k in before.kernels}
    new = {(k.repo_id, k.commit): k for k in after.kernels}
    lines = [f"+ {_named(kernel)}" for key, kernel in new.items() if key not in old]
    lines += [f"- {_named(kernel)}" for key, kernel in old.items() if key not in new]
    return sorted(lines, key=lambda line: (line[2:], line[0]))


def _named(kernel: LockedKernel) -> str:
    version = f" v{kernel.version}" if kernel.version is not None else ""
    return f"{kernel.repo_id}{version} ({kernel.commit[:12]})"


def _rows(made: Lock) -> list[dict[str, object]]:
    return [
        {
            "repo_id": kernel.repo_id,
            "requirement": str(kernel.requirement) if kernel.requirement else None,
            "version": kernel.version,
            "commit": kernel.commit,
            "variants": dict(kernel.variants),
            "dependencies": list(kernel.dependencies),
        }
        for kernel in made.kernels
    ]


def _synced(item: Synced) -> dict[str, object]:
    return {
        "repo_id": item.kernel.repo_id,
        "commit": item.kernel.commit,
        "variant": item.variant,
        "fetched": item.fetched,
        "bytes": item.size,
        "folder": str(item.folder) if item.folder else None,
        "signer": item.signer,
        "reason": item.reason,
    }


def _line(item: Synced) -> str:
    if item.variant is None:
        return f"none   {_named(item.kernel)}: {item.reason}"
    signed = f"  signed by {item.signer}" if item.signer else ""
    state = "new" if item.fetched else "kept"
    return f"{state:<5}  {_named(item.kernel)}  {item.variant}  {amount(item.size)}{signed}"
