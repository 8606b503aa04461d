"""The table of calls, matched on the raw, percent-encoded path.

A revision such as `refs%2Fpr%2F1` is one segment; a framework that decodes before it routes
cannot tell it from three. Each named part is decoded once, after the match.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from urllib.parse import unquote

from starlette.responses import Response

from . import commits, git_http, lfs_api, listing, refs_api, repos_api, resolve
from .call import Call
from .refusal import Refusal, no_entry

Handler = Callable[[Call], Response]
StreamHandler = Callable[[Call], Awaitable[Response]]

_REPO = r"(?P<namespace>[^/]+)/(?P<name>[^/]+)"
_API = rf"/api/(?P<kind>kernels|models|datasets|spaces)/{_REPO}"
_PAGE = rf"/(?:(?P<kind>kernels|datasets|spaces)/)?{_REPO}"
_GIT = _PAGE.replace("(?P<name>[^/]+)", r"(?P<name>[^/]+?)(?:\.git)?")
_REVISION = r"(?P<revision>[^/]+)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """`handler` gets the whole body, `stream` reads it itself."""

    methods: tuple[str, ...]
    pattern: re.Pattern[str]
    handler: Handler | None = None
    stream: StreamHandler | None = None


def _route(
    methods: str, pattern: str, handler: Handler | None = None, stream: StreamHandler | None = None
) -> Route:
    return Route(
        methods=tuple(methods.split()),
        pattern=re.compile(pattern, re.ASCII),
        handler=handler,
        stream=stream,
    )


def _in_repo(endpoint: str, rest: str = "") -> str:
    return rf"{_API}/(?P<endpoint>{endpoint}){rest}"


ROUTES = (
    _route("GET HEAD", r"/", repos_api.front),
    _route("GET", r"/api/whoami-v2", repos_api.whoami),
    _route("GET", r"/api/agent-harnesses", repos_api.harnesses),
    _route("POST", r"/api/validate-yaml", repos_api.validate_yaml),
    _route("GET", r"/api/organizations/(?P<organisation>[^/]+)/overview", repos_api.organisation),
    _route("POST", r"/api/repos/create", repos_api.create),
    _route("DELETE", r"/api/repos/delete", repos_api.delete),
    _route("POST", r"/api/repos/move", repos_api.move),
    _route("GET", r"/api/(?P<kind>kernels|models|datasets|spaces)", repos_api.listing),
    _route("GET", _API, repos_api.info),
    _route("PUT", _in_repo("settings"), repos_api.settings),
    _route("GET", _in_repo("revision", f"/{_REVISION}"), repos_api.info),
    _route("GET", _in_repo("refs"), refs_api.refs),
    _route("POST", _in_repo("branch", f"/{_REVISION}"), refs_api.create_branch),
    _route("DELETE", _in_repo("branch", f"/{_REVISION}"), refs_api.delete_branch),
    _route("POST", _in_repo("tag", f"/{_REVISION}"), refs_api.create_tag),
    _route("DELETE", _in_repo("tag", f"/{_REVISION}"), refs_api.delete_tag),
    _route("GET", _in_repo("tree", rf"/{_REVISION}(?:/(?P<path>.*))?"), listing.tree),
    _route("POST", _in_repo("paths-info", f"/{_REVISION}"), listing.paths_info),
    _route("GET", _in_repo("commits", f"/{_REVISION}"), commits.history),
    _route("POST", _in_repo("preupload", f"/{_REVISION}"), commits.preupload),
    _route("POST", _in_repo("commit", f"/{_REVISION}"), stream=commits.commit),
    _route("GET", _in_repo("xet-(?:read|write)-token", f"/{_REVISION}"), repos_api.xet),
    _route(
        "PUT",
        rf"/api/lfs/(?P<operation>upload|part)/(?P<kind>[^/]+)/{_REPO}/(?P<oid>[^/]+)",
        stream=lfs_api.upload,
    ),
    _route(
        "POST",
        rf"/api/lfs/(?P<operation>complete)/(?P<kind>[^/]+)/{_REPO}/(?P<oid>[^/]+)",
        lfs_api.complete,
    ),
    _route(
        "GET",
        rf"/api/lfs/(?P<operation>download)/(?P<kind>[^/]+)/{_REPO}/(?P<oid>[^/]+)",
        lfs_api.download,
    ),
    _route("POST", rf"{_PAGE}\.git/info/lfs/objects/batch", lfs_api.batch),
    _route("POST", rf"{_PAGE}\.git/info/lfs/verify", lfs_api.verify),
    _route("GET", rf"{_GIT}/info/refs", git_http.advertise),
    _route("POST", rf"{_GIT}/git-upload-pack", git_http.upload_pack),
    _route("GET HEAD", rf"{_PAGE}/resolve/{_REVISION}/(?P<path>.+)", resolve.resolve),
)


def find(method: str, raw_path: str) -> tuple[Route, dict[str, str]]:
    """The route of a request and the decoded parts of its path.

    Raises:
        Refusal: 404, there is no such address; 405, it takes other methods.
    """
    others: set[str] = set()
    for route in ROUTES:
        match = route.pattern.fullmatch(raw_path)
        if match is None:
            continue
        if method in route.methods:
            parts = {k: v for k, v in match.groupdict().items() if v is not None}
            return route, {name: unquote(value, errors="replace") for name, value in parts.items()}
        others.update(route.methods)
    if others:
        raise Refusal(405, "Method not allowed", headers={"Allow": ", ".join(sorted(others))})
    raise no_entry(unquote(raw_path, errors="replace"))
