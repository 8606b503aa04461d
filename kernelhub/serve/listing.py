"""Listings: trees in pages, and facts about single paths."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs

from starlette.responses import JSONResponse, Response

from .call import Call
from .commits import iso_date
from .pages import next_link
from .refusal import bad_request
from .repository import Entry, Repository


def tree(call: Call) -> Response:
    """The entries below a folder, one page of them."""
    expand, recursive = call.flag("expand"), call.flag("recursive")
    limits = call.hub.limits
    most = limits.expanded_page if expand else limits.page
    size = call.number("limit", most, most) or 1
    start = call.number("cursor", 0, 10**9)
    with call.reading() as repository:
        commit = repository.commit_of(call.args["revision"])
        path = (call.args.get("path") or "").strip("/")
        found = repository.listing(commit, path, recursive=recursive)
        entries = repository.entries(found[start : start + size])
        rows = _rows(repository, commit, entries, expand=expand)
    headers = {"X-Repo-Commit": commit}
    if start + size < len(found):
        headers["Link"] = next_link(call, commit, start + size)
    return JSONResponse(rows, headers=headers)


def paths_info(call: Call) -> Response:
    """The entries of given paths; unknown ones are left out."""
    paths, expand = _paths(call)
    if len(paths) > call.hub.limits.items:
        raise bad_request(f"at most {call.hub.limits.items} paths at once")
    with call.reading() as repository:
        commit = repository.commit_of(call.args["revision"])
        found = [repository.entry(commit, path.strip("/")) for path in paths]
        rows = _rows(repository, commit, [entry for entry in found if entry], expand=expand)
    return JSONResponse(rows)


def _paths(call: Call) -> tuple[list[str], bool]:
    """From a form, as clients send it, or from JSON."""
    if call.request.headers.get("content-type", "").startswith("application/json"):
        body = call.json()
        paths, expand = body.get("paths", []), body.get("expand") is True
    else:
        form = parse_qs(call.body.decode("utf-8", "replace"), keep_blank_values=True)
        paths, expand = form.get("paths", []), form.get("expand", [""])[0].lower() == "true"
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        raise bad_request("paths: expected a list of strings")
    return paths, expand


def _rows(
    repository: Repository, commit: str, entries: list[Entry], *, expand: bool
) -> list[dict[str, Any]]:
    rows = [_row(entry) for entry in entries]
    if expand:
        changes = _last_changes(repository, commit, [entry.path for entry in entries])
        for row in rows:
            row["lastCommit"] = changes[row["path"]]
            if row["type"] == "file":
                row["securityFileStatus"] = {
                    "status": "unscanned",
                    "avScan": None,
                    "pickleImportScan": None,
                }
    return rows


def _row(entry: Entry) -> dict[str, Any]:
    row: dict[str, Any] = {
        "type": "directory" if entry.is_folder else "file",
        "oid": entry.oid,
        "size": entry.size,
        "path": entry.path,
    }
    if entry.lfs is not None:
        row["lfs"] = {
            "oid": entry.lfs.oid,
            "size": entry.lfs.size,
            "pointerSize": entry.pointer_size,
        }
    return row


def _last_changes(repository: Repository, head: str, paths: list[str]) -> dict[str, Any]:
    """For each path, the newest commit of the first-parent line that changed it."""
    open_paths, found = set(paths), {}
    commit = repository.commit_object(head)
    while open_paths:
        parent = repository.commit_object(commit.parents[0].decode()) if commit.parents else None
        for path in sorted(open_paths):
            before = repository.oid_at(parent, path) if parent else None
            if repository.oid_at(commit, path) != before:
                found[path] = {
                    "id": commit.id.decode(),
                    "title": commit.message.decode("utf-8", "replace").partition("\n")[0],
                    "date": iso_date(commit.commit_time),
                }
        open_paths -= found.keys()
        if parent is None:
            break
        commit = parent
    return found
