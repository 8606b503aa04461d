"""LFS transfers: the batch call, the uploads that it hands out, and their completion."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response

from .call import Call
from .lfs import CHUNK, Incoming, LfsObjects, check_oid
from .lfs_links import Link
from .refusal import Refusal, bad_request, no_repository
from .resolve import read_range, send_file

_TYPE = "application/vnd.git-lfs+json"
_MOST_PARTS = 10_000


def batch(call: Call) -> Response:
    """Say for each object where its bytes go, or come from."""
    body = call.json()
    operation = call.text(body, "operation")
    objects = body.get("objects")
    if operation not in ("upload", "download"):
        raise bad_request(f"unknown LFS operation: {operation!r}")
    if not isinstance(objects, list) or len(objects) > call.hub.limits.items:
        raise bad_request(f"objects: expected a list of at most {call.hub.limits.items}")
    if operation == "upload":
        call.check_writable()
    multipart = "multipart" in (body.get("transfers") or [])
    with call.reading() as repository:
        answers = [_answer(call, repository.lfs, item, operation, multipart) for item in objects]
    # One action for an object that is named twice: clients would send it at once from one handle.
    answers = list({(answer["oid"], answer["size"]): answer for answer in answers}.values())
    transfer = "multipart" if any(_is_multipart(answer) for answer in answers) else "basic"
    return JSONResponse(
        {"transfer": transfer, "objects": answers, "hash_algo": "sha256"}, media_type=_TYPE
    )


def _answer(
    call: Call, lfs: LfsObjects, item: object, operation: str, multipart: bool
) -> dict[str, Any]:
    if not isinstance(item, dict) or not isinstance(item.get("size"), int) or item["size"] < 0:
        raise bad_request("objects: expected objects with oid and size")
    oid, size = check_oid(item.get("oid")), item["size"]
    answer: dict[str, Any] = {"oid": oid, "size": size, "authenticated": True}
    stored = lfs.size(oid)
    link = Link(operation=operation, repo_id=call.repo_id, oid=oid, size=size)
    if operation == "download":
        if stored != size:
            return {**answer, "error": {"code": 404, "message": "no such object"}}
        return {**answer, "actions": {"download": {"href": call.hub.signer.url(call.base, link)}}}
    if stored == size:
        return answer
    if size > call.hub.limits.lfs_bytes:
        limit = call.hub.limits.lfs_bytes
        return {**answer, "error": {"code": 413, "message": f"larger than {limit} bytes"}}
    verify = {"href": f"{call.base}/{call.repo_id.page}.git/info/lfs/verify"}
    return {**answer, "actions": {"upload": _upload(call, link, multipart), "verify": verify}}


def _upload(call: Call, link: Link, multipart: bool) -> dict[str, Any]:
    signer, limits = call.hub.signer, call.hub.limits
    if not multipart or link.size < limits.multipart_from:
        return {"href": signer.url(call.base, link)}
    part_bytes = max(limits.part_bytes, -(-link.size // _MOST_PARTS))
    count = -(-link.size // part_bytes)
    header = {"chunk_size": str(part_bytes)}
    for number in range(1, count + 1):
        size = min(part_bytes, link.size - (number - 1) * part_bytes)
        part = replace(link, operation="part", part=number, size=size)
        header[str(number)] = signer.url(call.base, part)
    complete = replace(link, operation="complete", part=count)
    return {"href": signer.url(call.base, complete), "header": header}


def _is_multipart(answer: dict[str, Any]) -> bool:
    return "chunk_size" in answer.get("actions", {}).get("upload", {}).get("header", {})


async def upload(call: Call) -> Response:
    """Take the bytes of an object, or of a part of one."""
    link = _link(call)
    lfs = await run_in_threadpool(_objects, call)
    with Incoming(call.hub.repositories.incoming, link.size) as incoming:
        await _receive(call, incoming)
        if incoming.size != link.size:
            raise bad_request(f"expected {link.size} bytes, received {incoming.size}")
        if link.operation == "upload":
            await run_in_threadpool(lfs.admit, incoming, link.oid, link.size)
        else:
            part = lfs.parts(link.oid) / str(link.part)
            await run_in_threadpool(lfs.keep, incoming, part)
        return Response(headers={"ETag": f'"{incoming.oid}"'})


async def _receive(call: Call, incoming: Incoming) -> None:
    """Write the body a megabyte at a time, in a thread: hashing must not stop other requests."""
    waiting = bytearray()
    async for chunk in call.request.stream():
        waiting += chunk
        if len(waiting) >= CHUNK:
            await run_in_threadpool(incoming.write, bytes(waiting))
            waiting.clear()
    await run_in_threadpool(incoming.write, bytes(waiting))


def complete(call: Call) -> Response:
    """Join the parts of an object."""
    link = _link(call)
    lfs = _objects(call)
    folder = lfs.parts(link.oid)
    parts = [folder / str(number) for number in range(1, link.part + 1)]
    missing = [part.name for part in parts if not part.exists()]
    if missing:
        raise bad_request(f"parts not uploaded: {', '.join(missing[:10])}")
    with Incoming(call.hub.repositories.incoming, link.size) as incoming:
        incoming.write_files(parts)
        lfs.admit(incoming, link.oid, link.size)
    shutil.rmtree(folder, ignore_errors=True)
    return JSONResponse({"success": True})


def verify(call: Call) -> Response:
    """Confirm that an object arrived."""
    body = call.json()
    oid = check_oid(body.get("oid"))
    call.check_writable()
    with call.reading() as repository:
        if repository.lfs.size(oid) != body.get("size"):
            raise Refusal(404, f"LFS object {oid} is not here", code="EntryNotFound")
    return JSONResponse({"success": True})


def download(call: Call) -> Response:
    """Send an object to git-lfs."""
    link = _link(call)
    span = read_range(call.request.headers.get("range"), link.size)
    headers = {"Accept-Ranges": "bytes", "Content-Type": "application/octet-stream"}
    return send_file(_objects(call).path(link.oid), link.size, span, headers)


def _link(call: Call) -> Link:
    oid = check_oid(call.args["oid"])
    if call.hub.read_only and call.args["operation"] != "download":
        raise Refusal(403, "Forbidden: this Hub is read-only")
    query = call.request.query_params
    return call.hub.signer.check(call.args["operation"], call.repo_id, oid, query)


def _objects(call: Call) -> LfsObjects:
    if not call.hub.repositories.exists(call.repo_id):
        raise no_repository(call.repo_id)
    return LfsObjects(call.hub.repositories.folder(call.repo_id))
