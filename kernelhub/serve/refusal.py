"""The answers that say no, in the words that stock clients understand.

`huggingface_hub` picks its exception by the header `X-Error-Code`, not by the status: a 404 without
it is an anonymous HTTP error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from starlette.responses import JSONResponse, Response


class Refusal(Exception):
    """Raised anywhere below the application; becomes the response."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.headers = dict(headers or {})

    def response(self) -> Response:
        """The JSON answer with the headers that clients read."""
        # A header holds printable ASCII only; file names in messages may be anything.
        text = re.sub(r"[^ -~]", "?", self.message)
        headers = {"X-Error-Message": text, **self.headers}
        if self.code is not None:
            headers["X-Error-Code"] = self.code
        message = self.message.encode("utf-8", "replace").decode()  # lone surrogates of a JSON body
        return JSONResponse({"error": message}, self.status, headers)


def no_repository(repo_id: object) -> Refusal:
    """Also the answer for a private repository: its existence is not given away."""
    return Refusal(404, f"Repository not found: {repo_id}", code="RepoNotFound")


def no_revision(revision: str) -> Refusal:
    return Refusal(404, f"Invalid rev id: {revision}", code="RevisionNotFound")


def no_entry(path: str, commit: str | None = None) -> Refusal:
    """With the commit, clients remember that the file is absent from it."""
    headers = {"X-Repo-Commit": commit} if commit else None
    return Refusal(404, f"Entry not found: {path}", code="EntryNotFound", headers=headers)


def bad_request(message: str) -> Refusal:
    return Refusal(400, message)


def too_large(what: str, limit: int) -> Refusal:
    return Refusal(413, f"{what} is larger than this Hub accepts ({limit})")
