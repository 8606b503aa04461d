"""Writing to a Hub: the only module of the builder that speaks to huggingface_hub.

Each call is made again after answers that say "later" (408, 429, 5xx) and after network errors, with
growing waits or those that the Hub asks for; errors leave as ours. Committing is not repeated here:
whether a commit whose answer was lost is to be sent again is for `publish` to find out.
"""

from __future__ import annotations

import hashlib
import io
import logging
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from packaging.version import Version

from kernelhub.errors import (
    HubAuthError,
    HubError,
    HubRateLimited,
    HubUnavailable,
    IntegrityError,
    KernelHubError,
    RepositoryNotFound,
    VersionNotFound,
)
from kernelhub.sources import RemoteFile

if TYPE_CHECKING:
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

log = logging.getLogger(__name__)

T = TypeVar("T")

REPO_TYPE = "kernel"
_WAITS = (1.0, 2.0, 4.0, 8.0)
_LATER = frozenset({408, 429, 500, 502, 503, 504})
_LONGEST_WAIT = 120.0
_NOT_THE_PROTOCOL = (ValueError, KeyError, TypeError, AttributeError)
_IN_MEMORY = 1 << 18  # files up to this size are read whole, so that few files are open at a time


class CommitRaced(HubError):
    """412: the branch is no longer at the commit that the caller looked at."""


class CommitUnknown(HubUnavailable):
    """The answer to a commit was lost: it may or may not have been made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """A file to commit: its place in the repository, its bytes on disk or in memory, its hash."""

    path: str
    source: Path | bytes
    size: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """What a commit made: its id and page, and the pull request's page if it opened one."""

    oid: str
    url: str
    pull_request: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refs:
    """Branch name to commit, and reference name of each pull request to commit."""

    branches: Mapping[str, str]
    pull_requests: Mapping[str, str]


class Hub:
    """One Hub, seen by a publisher.

    Args:
        endpoint: base URL.
        token: access token; None takes what HF's tools have stored or `HF_TOKEN`.
        sleep: waits that many seconds (tests pass their own).
    """

    def __init__(
        self,
        endpoint: str,
        token: str | None = None,
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.endpoint = endpoint.rstrip("/")
        self._token = token
        self._sleep = sleep
        self._api = _open_api(self.endpoint, token)
        self._trees: dict[tuple[str, str], tuple[RemoteFile, ...]] = {}  # commits do not change

    def refs(self, repo_id: str) -> Refs:
        """All branches and pull requests.

        Raises:
            RepositoryNotFound: no such repository, or the token does not reach it.
        """
        found = self._call(
            f"list the branches of {repo_id}",
            lambda: self._api.list_repo_refs(
                repo_id, repo_type=REPO_TYPE, include_pull_requests=True
            ),
        )
        return Refs(
            branches={ref.name: ref.target_commit for ref in found.branches},
            pull_requests={ref.ref: ref.target_commit for ref in found.pull_requests or ()},
        )

    def create_repository(self, repo_id: str, *, private: bool) -> None:
        """Create a repository of type kernel; one that is there already is left as it is."""
        self._call(
            f"create {repo_id}",
            lambda: self._api.create_repo(
                repo_id, repo_type=REPO_TYPE, private=private or None, exist_ok=True
            ),
        )

    def create_branch(self, repo_id: str, branch: str, start: str | None) -> None:
        """Create a branch at a commit; one that is there already is left as it is."""
        self._call(
            f"create branch {branch} of {repo_id}",
            lambda: self._api.create_branch(
                repo_id, branch=branch, revision=start, repo_type=REPO_TYPE, exist_ok=True
            ),
        )

    def tree(self, repo_id: str, commit: str) -> tuple[RemoteFile, ...]:
        """Every file at a commit, from one recursive listing."""
        known = self._trees.get((repo_id, commit))
        if known is not None:
            return known
        entries = self._call(
            f"list {repo_id} at {commit}",
            lambda: list(
                self._api.list_repo_tree(
                    repo_id, revision=commit, recursive=True, repo_type=REPO_TYPE
                )
            ),
        )
        files = tuple(
            RemoteFile(
                path=entry.path,
                size=entry.size,
                git_sha1=entry.blob_id,
                sha256=entry.lfs.sha256 if entry.lfs else None,
            )
            for entry in entries
            if hasattr(entry, "blob_id")
        )
        self._trees[repo_id, commit] = files
        return files

    def download(
        self, repo_id: str, commit: str, files: Iterable[RemoteFile], into: Path
    ) -> None:
        """Write files below `into` under their repository paths, each checked against its id.

        Raises:
            IntegrityError: the bytes that arrived are not those of the listing.
        """
        from huggingface_hub import hf_hub_download

        with tempfile.TemporaryDirectory() as cache:
            for file in files:
                name = file.path
                got = self._call(
                    f"download {name} of {repo_id}",
                    lambda name=name: hf_hub_download(  # type: ignore[misc]
                        repo_id,
                        name,
                        repo_type=REPO_TYPE,
                        revision=commit,
                        endpoint=self.endpoint,
                        token=self._token,
                        cache_dir=cache,
                    ),
                )
                content = Path(got).read_bytes()
                if not _is(content, file):
                    raise IntegrityError(
                        f"{repo_id} at {commit}: bytes differ from the listing",
                        faults={name: "hash mismatch"},
                        hint="try again; if it stays, the Hub or a proxy damages files",
                    )
                place = into / name
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(content)

    def commit(
        self,
        repo_id: str,
        branch: str,
        *,
        uploads: Sequence[Upload],
        deletions: Sequence[str],
        parent: str,
        message: str,
        description: str = "",
        create_pr: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> Committed:
        """Make one commit on top of `parent`. Contents stream: memory does not grow with size.

        Args:
            progress: called with the number of bytes of large files that were sent, by one thread
                at a time.

        Raises:
            CommitRaced: the branch has moved on from `parent`; nothing was changed.
            CommitUnknown: no answer; look at the branch before sending again.
        """
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete

        what = f"commit to {branch} of {repo_id}"
        with ExitStack() as stack:
            streams = [stack.enter_context(_open(upload)) for upload in uploads]
            additions = [
                CommitOperationAdd(upload.path, stream)
                for upload, stream in zip(uploads, streams, strict=True)
            ]
            for upload, stream in zip(uploads, streams, strict=True):
                if _sha256(stream) != upload.sha256:
                    raise IntegrityError(
                        f"{upload.path} changed while it was published",
                        hint="run `kernel-builder build`, then publish again",
                    )
            _observe(streams, progress)
            deleted = [CommitOperationDelete(path, is_folder=False) for path in deletions]
            try:
                made = self._api.create_commit(
                    repo_id,
                    [*additions, *deleted],
                    repo_type=REPO_TYPE,
                    revision=branch,
                    parent_commit=parent,
                    commit_message=message,
                    commit_description=description,
                    create_pr=create_pr,
                )
            except _errors() as error:
                raise _commit_error(error, what) from error
        return Committed(oid=made.oid, url=str(made.commit_url), pull_request=made.pr_url)

    def _call(self, what: str, call: Callable[[], T]) -> T:
        for wait in (*_WAITS, None):
            try:
                return call()
            except _errors() as error:
                translated = translate(error, what)
                if wait is None or not _is_passing(error):
                    raise translated from error
                pause = min(_asked_wait(error) or wait, _LONGEST_WAIT)
                log.warning("could not %s (%s); again in %.0f s", what, translated.message, pause)
            self._sleep(pause)
        raise AssertionError("unreachable")


def translate(error: Exception, what: str) -> KernelHubError:
    """Our error for one of huggingface_hub's, or of the network library below it."""
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    if isinstance(error, OfflineModeIsEnabled):
        return HubUnavailable(f"cannot {what}: offline", hint="unset HF_HUB_OFFLINE to publish")
    reason = str(error) or type(error).__name__
    if isinstance(error, _NOT_THE_PROTOCOL):
        return HubUnavailable(
            f"cannot {what}: the answer is not the Hub's protocol ({type(error).__name__}: {reason})",
            hint="check the endpoint; a proxy or login page may answer in the Hub's place",
        )
    if not isinstance(error, HfHubHTTPError):
        return HubUnavailable(
            f"cannot {what}: {reason}", hint="check the network, HF_ENDPOINT and proxies"
        )
    status = error.response.status_code
    said = error.server_message or ""
    facts: dict[str, Any] = {"status": status, "url": str(error.response.url)}
    if isinstance(error, GatedRepoError) or status == 403:
        return HubAuthError(
            f"cannot {what}: forbidden (403) {said}".rstrip(),
            hint="use a token with write access; publishing kernels to some namespaces needs the "
            "Hub's approval first",
            **facts,
        )
    if isinstance(error, RepositoryNotFoundError):
        return RepositoryNotFound(
            f"cannot {what}: no such repository, or it is private",
            hint="check the name; for a private repository give --token or log in",
        )
    if isinstance(error, RevisionNotFoundError):
        return VersionNotFound(f"cannot {what}: no such revision")
    return _by_status(status, what, said, facts)


def _by_status(status: int, what: str, said: str, facts: dict[str, Any]) -> HubError:
    text = f"cannot {what}: the Hub answered {status} {said}".rstrip()
    if status == 401:
        return HubAuthError(
            text, hint="give --token, set HF_TOKEN, or log in with `hf auth login`", **facts
        )
    if status == 412:
        return CommitRaced(text, hint="somebody else published in between: look, then run again", **facts)
    if status == 429:
        return HubRateLimited(text, hint="wait and run again: nothing is half done", **facts)
    if status >= 500 or status == 408:
        return HubUnavailable(text, hint="run again later: nothing is half done", **facts)
    return HubError(text, **facts)


def _commit_error(error: Exception, what: str) -> KernelHubError:
    translated = translate(error, what)
    if not isinstance(translated, HubUnavailable) or not _is_passing(error):
        return translated
    return CommitUnknown(
        translated.message, status=translated.status, url=translated.url, hint=translated.hint
    )


def _errors() -> tuple[type[Exception], ...]:
    """What calls of huggingface_hub raise for reasons outside this program.

    `HTTPError` is the base class of the network library that this version stands on. An answer
    that is no JSON, or JSON of another shape, surfaces as one of _NOT_THE_PROTOCOL.
    """
    from huggingface_hub.errors import HTTPError, OfflineModeIsEnabled

    return (HTTPError, OfflineModeIsEnabled, ConnectionError, TimeoutError, *_NOT_THE_PROTOCOL)


def _is_passing(error: Exception) -> bool:
    """Whether the same request may succeed a little later."""
    from huggingface_hub.errors import HfHubHTTPError, HTTPError, OfflineModeIsEnabled

    if isinstance(error, OfflineModeIsEnabled):
        return False
    if isinstance(error, HfHubHTTPError):
        return error.response.status_code in _LATER
    return isinstance(error, (HTTPError, ConnectionError, TimeoutError))


def _asked_wait(error: Exception) -> float | None:
    """Seconds that the Hub asked to wait: Retry-After, or the reset of its RateLimit header."""
    response = getattr(error, "response", None)
    if response is None:
        return None
    after = response.headers.get("Retry-After", "")
    if after.isdigit():
        return float(after)
    for part in response.headers.get("RateLimit", "").split(";"):
        key, _, value = part.strip().partition("=")
        if key == "t" and value.isdigit():
            return float(value) + 1
    return None


class _Observed(io.BufferedReader):
    """A file that tells how much of it was read."""

    watcher: Callable[[int], None] | None = None

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        if self.watcher is not None:
            self.watcher(len(data))
        return data


def _observe(streams: Sequence[BinaryIO], progress: Callable[[int], None] | None) -> None:
    if progress is None:
        return
    lock = threading.Lock()  # huggingface_hub sends several files at a time

    def watcher(count: int) -> None:
        with lock:
            progress(count)

    for stream in streams:
        if isinstance(stream, _Observed):
            stream.watcher = watcher


def _sha256(stream: BinaryIO) -> str:
    state = hashlib.sha256()
    stream.seek(0)
    while chunk := stream.read(1 << 20):
        state.update(chunk)
    stream.seek(0)
    return state.hexdigest()


def _open(upload: Upload) -> BinaryIO:
    """An open binary file: huggingface_hub then streams it, and needs no Xet service.

    Raises:
        IntegrityError: the file is gone.
    """
    if isinstance(upload.source, bytes):
        return io.BytesIO(upload.source)
    try:
        if upload.size <= _IN_MEMORY:
            return io.BytesIO(upload.source.read_bytes())
        return _Observed(upload.source.open("rb", buffering=0))  # type: ignore[return-value]
    except OSError as error:
        raise IntegrityError(
            f"cannot read {upload.source}: {error.strerror}",
            hint="run `kernel-builder build`, then publish again",
        ) from error


def _is(content: bytes, file: RemoteFile) -> bool:
    if file.sha256 is not None:
        return hashlib.sha256(content).hexdigest() == file.sha256
    header = f"blob {len(content)}\0".encode()
    return hashlib.sha1(header + content, usedforsecurity=False).hexdigest() == file.git_sha1


def quiet_library() -> None:
    """Stop huggingface_hub's own bars and warnings in this process: the command line has its own."""
    from huggingface_hub.utils import disable_progress_bars, logging

    disable_progress_bars()
    logging.set_verbosity_error()


def _open_api(endpoint: str, token: str | None) -> HfApi:
    import huggingface_hub
    from huggingface_hub import HfApi, constants

    if Version(huggingface_hub.__version__) < Version("2.3"):
        # Before 2.3 `create_commit` refuses the type by this list alone; its requests are the same.
        types = constants.REPO_TYPES
        if REPO_TYPE not in types:
            types.append(REPO_TYPE)
    return HfApi(endpoint=endpoint, token=token, library_name="kernel-builder")
