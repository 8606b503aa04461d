"""Commits: what a client wants uploaded how, the commit itself, and the history.

A commit happens under the repository's lock: blobs and trees are stored (each synced before it gets
its name), then the commit, and last the ref is moved by compare and swap. Whoever dies before that
leaves unreferenced objects and an unchanged branch. A commit that changes nothing makes none and
answers with the head, so a client that lost the answer may send its commit again.
"""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from itertools import islice
from typing import IO, Any

from dulwich.ignore import IgnoreFilter, read_ignore_patterns
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response

from . import attributes, commit_body
from .address import check_path
from .call import Call
from .commit_body import AddFile, AddLfs, Header, Operation
from .pages import next_link
from .refusal import Refusal, bad_request, no_entry, too_large
from .repository import Repository
from .tree_edit import Parts, edit, split

_SPOOL = 1024 * 1024  # a commit body up to this size stays in memory


def preupload(call: Call) -> Response:
    """Say for each file whether it goes into the commit body or through LFS."""
    call.check_writable()
    body = call.json()
    files = body.get("files")
    if not isinstance(files, list) or not all(isinstance(file, dict) for file in files):
        raise bad_request("files: expected a list of objects")
    if len(files) > call.hub.limits.items:
        raise bad_request(f"at most {call.hub.limits.items} files at once")
    ignored = _ignore_filter(body.get("gitIgnore"))
    with call.reading() as repository:
        commit = repository.commit_of(call.args["revision"])
        answer = [_upload(call, repository, commit, file, ignored) for file in files]
    return JSONResponse({"files": answer})


def _upload(
    call: Call, repository: Repository, commit: str, file: dict[str, Any], ignored: IgnoreFilter
) -> dict[str, Any]:
    path = check_path(call.text(file, "path"))
    size = file.get("size")
    if not isinstance(size, int):
        raise bad_request(f"{path}: size: expected a number of bytes")
    mode = "lfs" if size >= call.hub.limits.lfs_from else "regular"
    answer: dict[str, Any] = {
        "path": path,
        "uploadMode": mode,
        "shouldIgnore": _is_ignored(ignored, path),
    }
    entry = repository.entry(commit, path)
    if entry is not None and not entry.is_folder:
        answer["oid"] = entry.lfs.oid if entry.lfs else entry.oid
    return answer


def _ignore_filter(text: object) -> IgnoreFilter:
    data = text.encode("utf-8", "replace") if isinstance(text, str) else b""
    return IgnoreFilter(read_ignore_patterns(io.BytesIO(data)))


def _is_ignored(ignored: IgnoreFilter, path: str) -> bool:
    """Whether the file or one of the folders above it is ignored."""
    folders = [f"{path[:at]}/" for at, character in enumerate(path) if character == "/"]
    return any(ignored.is_ignored(candidate) for candidate in (*folders, path))


async def commit(call: Call) -> Response:
    """Make a commit on a branch, or on a new pull request on top of it."""
    await run_in_threadpool(call.check_writable)
    limit = call.hub.limits.commit_bytes
    incoming = os.fspath(call.hub.repositories.incoming)
    with tempfile.SpooledTemporaryFile(max_size=_SPOOL, dir=incoming) as spool:
        size = 0
        async for chunk in call.request.stream():
            size += len(chunk)
            if size > limit:
                raise too_large("the commit", limit)
            spool.write(chunk)
        spool.seek(0)
        return await run_in_threadpool(_commit, call, spool)


def _commit(call: Call, body: IO[bytes]) -> Response:
    header = commit_body.read_header(body, call.hub.limits)
    operations = commit_body.read_operations(body, call.hub.limits)
    page = f"{call.base}/{call.repo_id.page}"
    with call.writing() as repository:
        ref, head = repository.branch(call.args["revision"])
        if header.parent is not None and not head.startswith(header.parent):
            raise Refusal(412, f"A commit has happened since. Please refresh: {ref} is at {head}")
        oid = _build(repository, head, header, operations, call.who.name)
        answer = {
            "success": True,
            "commitOid": oid,
            "commitUrl": f"{page}/commit/{oid}",
            "hookOutput": "",
        }
        if call.flag("create_pr"):
            number = _next_pull_request(repository)
            repository.move_ref(f"refs/pr/{number}", None, oid)
            answer["pullRequestUrl"] = f"{page}/discussions/{number}"
        elif oid != head:
            repository.move_ref(ref, head, oid)
    return JSONResponse(answer)


@dataclass(slots=True, kw_only=True)
class _Changes:
    """What the operations of one commit add up to."""

    removed: set[Parts] = field(default_factory=set)
    added: dict[Parts, bytes] = field(default_factory=dict)
    large: set[str] = field(default_factory=set)
    small: set[str] = field(default_factory=set)


def _build(
    repository: Repository, head: str, header: Header, operations: Iterable[Operation], author: str
) -> str:
    """Store all objects of the commit; the head itself where nothing changes."""
    changes = _Changes()
    for operation in operations:
        _gather(repository, head, operation, changes)
    _mark_large_files(repository, head, changes)
    base = repository.commit_object(head).tree
    tree = edit(repository.git.object_store, base, changes.removed, changes.added)
    return head if tree == base else repository.commit(tree, head, header.message, author)


def _gather(repository: Repository, head: str, operation: Operation, changes: _Changes) -> None:
    path, parts = operation.path, split(operation.path)
    if isinstance(operation, AddFile):
        changes.added[parts] = repository.store(operation.content)
        changes.small.add(path)
    elif isinstance(operation, AddLfs):
        pointer = commit_body.pointer_of(operation, repository.lfs.size(operation.oid))
        changes.added[parts] = repository.store(pointer.render())
        changes.large.add(path)
    else:
        entry = repository.entry(head, path)
        if entry is None or entry.is_folder != operation.is_folder:
            kind = "folder" if operation.is_folder else "file"
            refusal = no_entry(path, head)
            refusal.message = f"A {kind} with this name doesn't exist: {path}"
            raise refusal
        changes.removed.add(parts)
        changes.small.add(path)


def _mark_large_files(repository: Repository, head: str, changes: _Changes) -> None:
    parts = split(attributes.NAME)
    entry = repository.entry(head, attributes.NAME)
    if parts in changes.added:
        old = repository.content(changes.added[parts].decode())
    elif entry is not None and parts not in changes.removed:
        old = repository.content(entry.oid)
    else:
        old = b""
    new = attributes.with_lfs_lines(old, large=changes.large, small=changes.small - changes.large)
    if changes.large or new != old:
        changes.added[parts] = repository.store(new)


def _next_pull_request(repository: Repository) -> int:
    return max((int(name) for name in repository.refs("refs/pr/") if name.isdigit()), default=0) + 1


def history(call: Call) -> Response:
    """The commits of a revision, newest first, in pages."""
    with call.reading() as repository:
        head = repository.commit_of(call.args["revision"])
        size = call.number("limit", call.hub.limits.page, call.hub.limits.page) or 1
        start = call.number("cursor", 0, 10**9)
        found = list(islice(repository.history(head), start, start + size + 1))
    rows = [_row(item) for item in found[:size]]
    headers = {}
    if len(found) > size:
        headers["Link"] = next_link(call, head, start + size)
    return JSONResponse(rows, headers=headers)


def _row(commit: Any) -> dict[str, Any]:
    title, _, message = commit.message.decode("utf-8", "replace").partition("\n")
    author = commit.author.decode("utf-8", "replace").partition(" <")[0]
    return {
        "id": commit.id.decode(),
        "title": title,
        "message": message.strip(),
        "authors": [{"user": author}],
        "date": iso_date(commit.commit_time),
    }


def iso_date(seconds: int) -> str:
    """The form of date that clients parse."""
    when = datetime.fromtimestamp(seconds, tz=timezone.utc)
    return when.strftime("%Y-%m-%dT%H:%M:%S.000Z")
