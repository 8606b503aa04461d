"""Branches, tags and pull requests as refs: list, make, delete."""

from __future__ import annotations

import time
from typing import Any

from dulwich.objects import Commit, Tag
from starlette.responses import JSONResponse, Response

from .address import check_ref_name
from .call import Call
from .refusal import Refusal, bad_request, no_revision


def refs(call: Call) -> Response:
    """All refs; pull requests only where asked for."""
    with call.reading() as repository:
        answer: dict[str, list[dict[str, Any]]] = {"converts": []}
        sections = {"branches": "refs/heads/", "tags": "refs/tags/"}
        if call.flag("include_prs"):
            sections["pullRequests"] = "refs/pr/"
        for section, prefix in sections.items():
            answer[section] = [
                {"name": name, "ref": prefix + name, "targetCommit": commit}
                for name, commit in repository.refs(prefix).items()
            ]
    return JSONResponse(answer)


def create_branch(call: Call) -> Response:
    """Make a branch at a starting point, else at the head of `main`."""
    name = check_ref_name(call.args["revision"])
    start = call.text(call.json(), "startingPoint", "main")
    with call.writing() as repository:
        repository.move_ref(f"refs/heads/{name}", None, repository.commit_of(start))
    return JSONResponse({"success": True})


def delete_branch(call: Call) -> Response:
    """Delete a branch; `main` stays, because every repository has one."""
    name = check_ref_name(call.args["revision"])
    if name == "main":
        raise Refusal(403, "Forbidden: main cannot be deleted")
    return _delete(call, f"refs/heads/{name}")


def create_tag(call: Call) -> Response:
    """Tag a revision; with a message, by a tag object."""
    body = call.json()
    name = check_ref_name(call.text(body, "tag"))
    message = call.text(body, "message", "")
    with call.writing() as repository:
        target = repository.commit_of(call.args["revision"])
        if message:
            target = _tag_object(call, repository.git.object_store, name, target, message)
        repository.move_ref(f"refs/tags/{name}", None, target)
    return JSONResponse({"success": True})


def delete_tag(call: Call) -> Response:
    """Delete a tag."""
    return _delete(call, f"refs/tags/{check_ref_name(call.args['revision'])}")


def _delete(call: Call, ref: str) -> Response:
    with call.writing() as repository:
        name = ref.encode()
        if name not in repository.git.refs:
            raise no_revision(ref)
        repository.git.refs.remove_if_equals(name, repository.git.refs[name])
    return JSONResponse({"success": True})


def _tag_object(call: Call, objects: Any, name: str, target: str, message: str) -> str:
    if len(message) > 64 * 1024:
        raise bad_request("the message of the tag is too long")
    tag = Tag()
    tag.name = name.encode()
    tag.object = (Commit, target.encode())
    tag.tagger = f"{call.who.name} <{call.who.name}@kernelhub>".encode()
    tag.tag_time, tag.tag_timezone = int(time.time()), 0
    tag.message = message.encode("utf-8", "replace")
    objects.add_object(tag)
    return tag.id.decode()  # type: ignore[no-any-return]
