"""Repositories as wholes: create, describe, list, move, delete; and what clients ask beside."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from starlette.responses import JSONResponse, PlainTextResponse, Response

from .address import RepoId
from .auth import check_read, unauthorised
from .call import Call
from .commits import iso_date
from .refusal import Refusal, bad_request, no_entry
from .repository import Repository, write_facts


def create(call: Call) -> Response:
    """Make a repository; where it exists, 409 with its URL, which clients may take for a yes."""
    body = call.json()
    namespace = body.get("organization") or call.who.name
    repo_id = RepoId.of(call.text(body, "type", "model"), namespace, call.text(body, "name"))
    private = body.get("private") is True or body.get("visibility") == "private"
    call.check_namespace(repo_id.namespace)
    answer: dict[str, Any] = {
        "url": f"{call.base}/{repo_id.page}",
        "name": str(repo_id),
        "id": str(repo_id),
    }
    try:
        call.hub.repositories.create(repo_id, private=private)
    except Refusal as refusal:
        if refusal.status != 409:
            raise
        return JSONResponse({**answer, "error": refusal.message}, 409)
    return JSONResponse(answer)


def delete(call: Call) -> Response:
    """Remove a repository."""
    body = call.json()
    namespace = body.get("organization") or call.who.name
    repo_id = RepoId.of(call.text(body, "type", "model"), namespace, call.text(body, "name"))
    _check_owner(call, repo_id)
    call.hub.repositories.delete(repo_id)
    return JSONResponse({"success": True})


def move(call: Call) -> Response:
    """Give a repository another name."""
    body = call.json()
    kind = call.text(body, "type", "model")
    old = RepoId.parse(kind, call.text(body, "fromRepo"))
    new = RepoId.parse(kind, call.text(body, "toRepo"))
    _check_owner(call, old)
    call.check_namespace(new.namespace)
    call.hub.repositories.move(old, new)
    return JSONResponse({"success": True})


def _check_owner(call: Call, repo_id: RepoId) -> None:
    with call.hub.repositories.reading(repo_id) as repository:
        check_read(call.who, repo_id, private=repository.facts.private)
    call.check_namespace(repo_id.namespace)


def settings(call: Call) -> Response:
    """Make a repository private or public."""
    body = call.json()
    with call.writing() as repository:
        private = body.get("private", body.get("visibility") == "private")
        if not isinstance(private, bool):
            raise bad_request("private: expected a boolean")
        write_facts(repository.folder, replace(repository.facts, private=private))
    return JSONResponse({"private": private})


def info(call: Call) -> Response:
    """Facts of a repository at a revision."""
    with call.reading() as repository:
        commit = repository.commit_of(call.args.get("revision") or "main")
        return JSONResponse(_facts(call.repo_id, repository, commit))


def listing(call: Call) -> Response:
    """The repositories of a kind that the caller may see, optionally of one author or by a word."""
    query = call.request.query_params
    kind, author, word = call.args["kind"], query.get("author"), query.get("search", "").lower()
    wanted = [
        repo_id
        for repo_id in call.hub.repositories.all(RepoId.of(kind, "x", "x").kind)
        if author in (None, repo_id.namespace) and word in str(repo_id).lower()
    ]
    limit = call.number("limit", call.hub.limits.page, call.hub.limits.page)
    rows: list[dict[str, Any]] = []
    for repo_id in wanted:
        if len(rows) >= limit:
            break
        with call.hub.repositories.reading(repo_id) as repository:
            if repository.facts.private and not call.who.reaches(repo_id.namespace):
                continue
            rows.append(_facts(repo_id, repository, repository.commit_of("main")))
    return JSONResponse(rows)


def _facts(repo_id: RepoId, repository: Repository, commit: str) -> dict[str, Any]:
    facts = repository.facts
    row = {
        "_id": str(repo_id),
        "id": str(repo_id),
        "author": repo_id.namespace,
        "sha": commit,
        "private": facts.private,
        "gated": False,
        "disabled": False,
        "likes": 0,
        "downloads": 0,
        "tags": [],
        "createdAt": iso_date(facts.created),
        "lastModified": iso_date(repository.commit_object(commit).commit_time),
    }
    if repo_id.kind != "kernel":  # older clients cannot read files listed for a kernel
        names = repository.listing(commit, "", recursive=True)
        row["siblings"] = [{"rfilename": path} for path, mode, _ in names if mode & 0o100000]
    return row


def whoami(call: Call) -> Response:
    """Who the token belongs to."""
    if call.hub.tokens.required and not call.who.authenticated:
        raise unauthorised()
    role = "write" if call.who.write else "read"
    return JSONResponse(
        {
            "type": "user",
            "id": call.who.name,
            "name": call.who.name,
            "fullname": call.who.name,
            "isPro": False,
            "orgs": [{"name": name} for name in call.who.namespaces or ()],
            "auth": {"accessToken": {"displayName": call.who.name, "role": role}},
        }
    )


def organisation(call: Call) -> Response:
    """A publisher: one that is configured, or that has repositories here."""
    name = call.args["organisation"]
    known = call.hub.organisations.get(name)
    if known is not None:
        return JSONResponse(known.overview())
    if not call.hub.repositories.has_namespace(name):
        raise no_entry(f"organisation {name}")
    return JSONResponse(
        {"name": name, "fullname": name, "isVerified": False, "trustedKernelPublisher": False}
    )


def harnesses(_call: Call) -> Response:
    """The registry of environments that clients ask for and cache: none are known here."""
    return JSONResponse({"standardEnvVars": [], "harnesses": {}})


def validate_yaml(call: Call) -> Response:
    """The check of a README before it is uploaded. Its metadata is the author's own business."""
    call.json()
    return JSONResponse({"errors": [], "warnings": []})


def xet(_call: Call) -> Response:
    """There is no Xet store; the text reaches the user of a client that wants one."""
    raise Refusal(
        404,
        "This Hub has no Xet store: set HF_HUB_DISABLE_XET=1 to upload large files to it",
        code="XetNotSupported",
    )


def front(call: Call) -> Response:
    """For people who open the address in a browser."""
    return PlainTextResponse(f"A kernelhub Hub. Point clients at it: HF_ENDPOINT={call.base}\n")
