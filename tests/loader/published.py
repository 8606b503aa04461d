"""Kernels to publish, and how: as the builder lays them out, by plain requests to the Hub."""

from __future__ import annotations

import base64
import hashlib
import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from kernelhub.formats.digest import Digest, hash_bytes, is_hashed
from kernelhub.formats.metadata import parse_metadata, render_metadata

PLAIN = b'"""A kernel."""\n\n__all__ = ["answer"]\n\n\ndef answer():\n    return 42\n'


def metadata(
    files: Mapping[str, bytes],
    *,
    name: str = "demo-kernel",
    version: int = 1,
    backend: str = "cpu",
    archs: Sequence[str] | None = None,
    digest: bool = True,
    needs: Sequence[Mapping[str, Any]] = (),
    packages: Sequence[str] = (),
    extension: Mapping[str, Any] | None = None,
) -> bytes:
    """A metadata.json for `files`; without `extension` it is one that HF's builder writes."""
    value: dict[str, Any] = {
        "name": name,
        "id": f"_{name.replace('-', '_')}_{backend}_abc1234",
        "version": version,
        "license": "Apache-2.0",
        "python-depends": list(packages),
        "kernel-depends": list(needs),
        "backend": {"type": backend, **({"archs": list(archs)} if archs else {})},
    }
    if extension is not None:
        value["kernelhub"] = {"schema": 1, **extension}
    stated = parse_metadata(json.dumps(value).encode())
    if digest:
        hashed = {path: hash_bytes(data) for path, data in files.items() if is_hashed(path)}
        stated = replace(stated, digest=Digest(algorithm="sha256", files=hashed))
    return render_metadata(stated)


def variant(
    files: Mapping[str, bytes] | None = None, *, folder: str | None = None, **facts: Any
) -> dict[str, bytes]:
    """The files of one variant by repository path, metadata.json included."""
    files = {"__init__.py": PLAIN} if files is None else files
    folder = folder or f"torch-{facts.get('backend', 'cpu')}"
    held = {f"build/{folder}/{path}": data for path, data in files.items()}
    return {**held, f"build/{folder}/metadata.json": metadata(files, **facts)}


def asked(hub: Any) -> list[str]:
    """Paths of the requests so far; a record is made a moment after its answer was read."""
    count = -1
    while count != len(hub.requests):
        count = len(hub.requests)
        time.sleep(0.02)
    return [record.path for record in hub.requests]


def request(url: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> Any:
    """POST (or GET) and the JSON of the answer."""
    asked = urllib.request.Request(url, data=body, headers=dict(headers or {}))
    with urllib.request.urlopen(asked, timeout=60) as answer:
        return json.loads(answer.read() or b"null")


_created: set[tuple[str, str]] = set()


def remove_all(url: str) -> None:
    """Remove what `publish` created on that Hub."""
    for repo_id in sorted(repo_id for where, repo_id in _created if where == url):
        org, name = repo_id.split("/")
        body = json.dumps({"name": name, "organization": org, "type": "kernel"}).encode()
        asked = urllib.request.Request(f"{url}/api/repos/delete", body, method="DELETE")
        with urllib.request.urlopen(asked, timeout=60):
            pass
    _created.clear()


def publish(
    url: str,
    repo_id: str,
    files: Mapping[str, bytes | None],
    *,
    version: int | None = 1,
    lfs: Sequence[str] = (),
    headers: Mapping[str, str] | None = None,
) -> str:
    """One commit on the version's branch (on main for None); returns its id."""
    org, name = repo_id.split("/")
    _created.add((url, repo_id))
    extra = {"Content-Type": "application/json", **(headers or {})}
    branch = f"v{version}" if version is not None else "main"
    steps = [("repos/create", {"name": name, "organization": org, "type": "kernel"})]
    if version is not None:
        steps.append((f"kernels/{repo_id}/branch/{branch}", {}))
    for path, body in steps:
        _create(f"{url}/api/{path}", json.dumps(body).encode(), extra)
    lines: list[dict[str, Any]] = [{"key": "header", "value": {"summary": "publish"}}]
    for path, data in files.items():
        lines.append(_line(url, repo_id, path, data, lfs=path in lfs))
    body = b"\n".join(json.dumps(line).encode() for line in lines)
    answer = request(
        f"{url}/api/kernels/{repo_id}/commit/{branch}",
        body,
        {**extra, "Content-Type": "application/x-ndjson"},
    )
    return str(answer["commitOid"])


def branch(url: str, repo_id: str, name: str) -> None:
    """A branch of a repository that is there, at main, with nothing published on it yet."""
    kind = {"Content-Type": "application/json"}
    _create(f"{url}/api/kernels/{repo_id}/branch/{name}", b"{}", kind)


def _create(url: str, body: bytes, headers: Mapping[str, str]) -> None:
    """POST; what exists already is fine."""
    try:
        request(url, body, headers)
    except urllib.error.HTTPError as error:
        if error.code != 409:
            raise


def _line(url: str, repo_id: str, path: str, data: bytes | None, *, lfs: bool) -> dict[str, Any]:
    if data is None:
        return {"key": "deletedFile", "value": {"path": path}}
    if not lfs:
        content = base64.b64encode(data).decode()
        return {"key": "file", "value": {"path": path, "content": content, "encoding": "base64"}}
    oid = hashlib.sha256(data).hexdigest()
    upload_lfs(url, repo_id, oid, data)
    return {
        "key": "lfsFile",
        "value": {"path": path, "algo": "sha256", "oid": oid, "size": len(data)},
    }


def upload_lfs(url: str, repo_id: str, oid: str, data: bytes) -> None:
    batch = {
        "operation": "upload",
        "transfers": ["basic"],
        "objects": [{"oid": oid, "size": len(data)}],
        "hash_algo": "sha256",
    }
    kind = "application/vnd.git-lfs+json"
    answer = request(
        f"{url}/kernels/{repo_id}.git/info/lfs/objects/batch",
        json.dumps(batch).encode(),
        {"Content-Type": kind, "Accept": kind},
    )
    actions = answer["objects"][0].get("actions")
    if actions:
        put = urllib.request.Request(actions["upload"]["href"], data=data, method="PUT")
        with urllib.request.urlopen(put, timeout=60):
            pass
