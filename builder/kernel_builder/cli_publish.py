"""`kernel-builder publish`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from kernelhub import settings
from kernelhub.cli_text import amount, count

from .cli_progress import reporting
from .hub import Hub, quiet_library
from .project import Project
from .publish import Options, Publication, publish
from .publish_branch import BranchResult


@click.command("publish")
@click.argument("path", type=click.Path(path_type=Path), default=".")
@click.option("--repo-id", help="Repository, as org/name. Default: general.hub.repo-id.")
@click.option("--branch", help="Branch of the build. Default: general.hub.branch, else v<version>.")
@click.option("--endpoint", help="Base URL of the Hub. Default: HF_ENDPOINT.")
@click.option("--token", help="Access token. Default: HF_TOKEN, or what `hf auth login` stored.")
@click.option("--private", is_flag=True, help="Create a missing repository as a private one.")
@click.option("--create-pr", is_flag=True, help="Open a pull request per branch instead.")
@click.option("--allow-breaking", is_flag=True, help="Publish although the interface breaks.")
@click.option("--dry-run", is_flag=True, help="Show what would change; write nothing.")
@click.option(
    "--build",
    "output",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of the build. Default: PATH/build.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, no progress.")
def command(
    path: Path,
    repo_id: str | None,
    branch: str | None,
    endpoint: str | None,
    token: str | None,
    private: bool,
    create_pr: bool,
    allow_breaking: bool,
    dry_run: bool,
    output: Path | None,
    as_json: bool,
) -> None:
    """Publish the build of the project in PATH, one commit per branch.

    The build goes to branch v<version>, the card to main. Publishing the same bytes again makes no
    commit. A build that would break the public interface of a published version is refused.
    """
    options = Options(
        repo_id=repo_id,
        branch=branch,
        private=private,
        create_pr=create_pr,
        allow_breaking=allow_breaking,
        dry_run=dry_run,
        output=output,
    )
    hub = Hub(endpoint or settings.current().endpoint, token)
    quiet_library()
    with reporting(silent=as_json) as reporter:
        done = publish(Project.open(path), hub, options, reporter=reporter)
    click.echo(json.dumps(_facts(done, dry_run), indent=2) if as_json else _text(done, dry_run))


def _facts(done: Publication, dry_run: bool) -> dict[str, object]:
    return {
        "repo_id": done.repo_id,
        "created": done.created,
        "dry_run": dry_run,
        "newest": done.newest,
        "breaks": [{"name": item.name, "what": item.what} for item in done.breaks],
        "branches": [
            {
                "branch": result.plan.branch,
                "parent": result.plan.parent,
                "added": list(result.plan.added),
                "updated": list(result.plan.updated),
                "deleted": list(result.plan.deleted),
                "unchanged": list(result.plan.unchanged),
                "upload_bytes": result.plan.upload_bytes,
                "commit": result.committed.oid if result.committed else None,
                "url": result.committed.url if result.committed else None,
                "pull_request": result.committed.pull_request if result.committed else None,
                "note": result.note,
            }
            for result in done.branches
        ],
    }


def _text(done: Publication, dry_run: bool) -> str:
    state = " (does not exist yet)" if dry_run and done.created else ""
    lines = [f"{done.repo_id}{state}"]
    for result in done.branches:
        lines += _branch_lines(result, dry_run)
    if done.newest is not None:
        lines.append(f"  main: the card is left to {done.newest}, which is newer")
    lines += [f"  break: {item}" for item in done.breaks]
    return "\n".join(lines)


def _branch_lines(result: BranchResult, dry_run: bool) -> list[str]:
    plan = result.plan
    if plan.is_empty:
        return [f"  {plan.branch}: up to date, {count(len(plan.unchanged), 'file')}"]
    counts = (
        f"add {len(plan.added)}, update {len(plan.updated)}, delete {len(plan.deleted)}, "
        f"unchanged {len(plan.unchanged)}; {amount(plan.upload_bytes)} to send"
    )
    lines = [f"  {plan.branch}: {counts}"]
    if dry_run:
        for sign, paths in (("+", plan.added), ("~", plan.updated), ("-", plan.deleted)):
            lines += [f"    {sign} {path}" for path in paths]
    elif result.committed is not None:
        lines.append(f"    {result.committed.pull_request or result.committed.url}")
    if result.note is not None:
        lines.append(f"    {result.note}")
    return lines
