"""Kernels on a Hub, over HTTP. The only room that imports huggingface_hub."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any
from urllib.parse import quote

from kernelhub.errors import (
    HubError,
    HubRateLimited,
    HubUnavailable,
    IntegrityError,
    NotFoundError,
    RepositoryNotFound,
    VersionNotFound,
)
from kernelhub.formats.names import path_fault
from kernelhub.reporter import SILENT, Reporter

from . import RemoteFile
from .download import download
from .transport import Transport, origin

logger = logging.getLogger(__name__)

_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?", re.ASCII)
_ABBREVIATED = re.compile(r"[0-9a-f]{4,39}", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
_VERSION = re.compile(r"v(\d{1,18})", re.ASCII)
_PAGES = 1000
_AT_ONCE = 8


class HubSource:
    """A `Source`: one Hub, for the length of one load.

    Args:
        endpoint: base URL of the Hub.
        timeout: seconds that all requests of this source together may take.
        quick: do not retry, since the caller has something to fall back to.
        reporter: hears of downloaded bytes.
    """

    def __init__(
        self, endpoint: str, timeout: float, *, quick: bool = False, reporter: Reporter = SILENT
    ) -> None:
        self.endpoint = endpoint
        self._transport = Transport(endpoint, timeout, quick=quick)
        self._reporter = reporter

    def versions(self, repo_id: str) -> Mapping[int, str]:
        """All versions N (branches `v<N>`) and the commit each stands at now."""
        url = f"{self._api(repo_id)}/refs"
        answer = _object(self._transport.get_json(url)[0], url)
        found: dict[int, str] = {}
        # Longest names first, so that `v1` has the last word over an odd `v01`.
        for ref in sorted(
            _objects(answer.get("branches"), url), key=lambda r: -len(str(r.get("name")))
        ):
            if match := _VERSION.fullmatch(str(ref.get("name"))):
                found[int(match[1])] = _commit(ref.get("targetCommit"), url)
        return dict(sorted(found.items()))

    def resolve(self, repo_id: str, revision: str) -> str:
        """The full commit id of a branch, tag or (abbreviated) commit."""
        url = f"{self._api(repo_id)}/revision/{quote(revision, safe='')}"
        try:
            answer = self._transport.get_json(url)[0]
        except VersionNotFound as error:
            raise VersionNotFound(
                f"{repo_id} has no revision {revision!r}", hint=_revision_hint(repo_id, revision)
            ) from error
        return _commit(_object(answer, url).get("sha"), url)

    def listing(self, repo_id: str, commit: str, folder: str = "build") -> tuple[RemoteFile, ...]:
        """Every file below `folder` at that commit; empty if there is no such folder.

        Raises:
            IntegrityError: a file's name could not be stored safely on every system.
        """
        path = quote(folder, safe="")
        url = f"{self._api(repo_id)}/tree/{commit}/{path}?recursive=true&expand=false"
        files: list[RemoteFile] = []
        next_url: str | None = url
        for _ in range(_PAGES):
            if next_url is None:
                break
            try:
                entries, headers = self._transport.get_json(next_url)
            except (RepositoryNotFound, VersionNotFound):
                raise
            except NotFoundError:
                return ()
            files += [_file(e, url) for e in _objects(entries, url) if e.get("type") == "file"]
            next_url = self._next_page(headers)
        _check_names(repo_id, files)
        return tuple(sorted(files, key=lambda file: file.path))

    def fetch(self, repo_id: str, commit: str, files: Iterable[RemoteFile], into: Path) -> None:
        """Write each file below `into` under its repository path, checked against its id.

        Several are fetched at once; the first failure ends the others, and what has arrived stays
        there to be continued.
        """
        wanted = sorted(files, key=lambda file: -file.size)
        base = f"{self.endpoint}/kernels/{repo_id}/resolve/{commit}"
        lock = threading.Lock()

        def arrived(amount: int) -> None:
            with lock:
                self._reporter.advance(amount)

        def one(file: RemoteFile) -> None:
            url = f"{base}/{quote(file.path)}"
            download(self._transport, url, file, into / file.path, arrived)

        total = sum(file.size for file in wanted)
        self._reporter.stage(f"download {repo_id}", total, "bytes")
        pool = ThreadPoolExecutor(max_workers=_AT_ONCE, thread_name_prefix="kernelhub-fetch")
        try:
            for done in as_completed([pool.submit(one, file) for file in wanted]):
                done.result()
        except BaseException:  # an interrupt too must not leave threads that go on downloading
            self._transport.cancelled.set()
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
        self._reporter.done()

    def is_trusted_publisher(self, publisher: str) -> bool:
        """Whether the Hub marks this organisation as a trusted publisher; any doubt is False.

        A Hub that cannot be asked is no doubt about a publisher: who is told "not trusted" when
        the Hub is down learns to pass `trust_remote_code=True`.

        Raises:
            HubRateLimited, HubUnavailable: it gave no answer.
        """
        url = f"{self.endpoint}/api/organizations/{quote(publisher, safe='')}/overview"
        try:
            answer = self._transport.get_json(url)[0]
        except (HubRateLimited, HubUnavailable):
            raise
        except (HubError, NotFoundError) as error:
            logger.warning("whether %s is a trusted publisher is not known: %s", publisher, error)
            return False
        return isinstance(answer, dict) and answer.get("trustedKernelPublisher") is True

    def _api(self, repo_id: str) -> str:
        return f"{self.endpoint}/api/kernels/{quote(repo_id)}"

    def _next_page(self, headers: Mapping[str, str]) -> str | None:
        match = re.search(r'<([^>]+)>\s*;\s*rel="?next"?', headers.get("Link") or "")
        if match is None:
            return None
        if origin(match[1]) != origin(self.endpoint):
            raise HubUnavailable(
                f"{self.endpoint} sends its next page from elsewhere: {match[1]}",
                url=match[1],
                hint="HF_ENDPOINT must be the address by which the Hub calls itself",
            )
        return match[1]


def _revision_hint(repo_id: str, revision: str) -> str:
    if _ABBREVIATED.fullmatch(revision):
        return "if it is a commit, give all 40 digits of it"
    return f"`kernelhub versions {repo_id}` lists versions and their commits"


def _not_the_protocol(url: str, what: str) -> HubUnavailable:
    return HubUnavailable(
        f"{url} does not answer as a Hub does: {what}",
        url=url,
        hint="HF_ENDPOINT names the Hub; a proxy may have answered in its place",
    )


def _object(value: Any, url: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _not_the_protocol(url, "expected an object")
    return value


def _objects(value: Any, url: str) -> list[dict[str, Any]]:
    if not isinstance(value, list):
        raise _not_the_protocol(url, "expected a list")
    return [_object(item, url) for item in value]


def _commit(value: Any, url: str) -> str:
    if not isinstance(value, str) or not _COMMIT.fullmatch(value):
        raise _not_the_protocol(url, f"expected a commit, found {value!r}")
    return value


def _file(entry: dict[str, Any], url: str) -> RemoteFile:
    lfs = entry.get("lfs")
    sha256 = _object(lfs, url).get("oid") if lfs is not None else None
    size = _object(lfs, url).get("size") if lfs is not None else entry.get("size")
    path, git_sha1 = entry.get("path"), entry.get("oid")
    if not isinstance(path, str) or not isinstance(size, int) or size < 0:
        raise _not_the_protocol(url, f"expected path and size of a file, found {entry!r}")
    if sha256 is not None and not (isinstance(sha256, str) and _SHA256.fullmatch(sha256)):
        raise _not_the_protocol(url, f"expected the sha256 of {path}")
    return RemoteFile(path=path, size=size, git_sha1=_commit(git_sha1, url), sha256=sha256)


def _check_names(repo_id: str, files: Iterable[RemoteFile]) -> None:
    """Refuse names that leave the folder, or that are one on systems that ignore case."""
    faults: dict[str, str] = {}
    seen: dict[str, str] = {}
    for file in files:
        if fault := path_fault(file.path):
            faults[file.path] = fault
        other = seen.setdefault(file.path.casefold(), file.path)
        if other is not file.path:
            faults[file.path] = f"differs from {other} by case only, or is listed twice"
    if faults:
        raise IntegrityError(
            f"{repo_id} holds files of names that are not safe",
            faults=faults,
            hint="its publisher has to rename them",
        )
