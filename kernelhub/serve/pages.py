"""Pagination: the link to the next page, pinned to a commit so that pages of one listing agree."""

from __future__ import annotations

from urllib.parse import quote, urlencode

from .call import Call


def next_link(call: Call, commit: str, cursor: int) -> str:
    """The value of the `Link` header: this request again, at `commit`, from entry `cursor` on."""
    raw = call.request.scope["raw_path"].decode("ascii")
    prefix, _, rest = raw.partition(f"/{call.args['endpoint']}/")
    _, slash, path = rest.partition("/")
    pinned = f"{prefix}/{call.args['endpoint']}/{quote(commit)}{slash}{path}"
    query = [
        (name, value) for name, value in call.request.query_params.multi_items() if name != "cursor"
    ]
    return f'<{call.base}{pinned}?{urlencode([*query, ("cursor", str(cursor))])}>; rel="next"'
