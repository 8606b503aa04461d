"""Writing to a Hub: the only module of the builder that speaks to huggingface_hub.

How often and how long a call is made is in `hub_calls`; errors leave as ours. Committing is not
repeated here: whether a commit whose answer was lost is to be sent again is for `publish_send` to
find out.
"""

from __future__ import annotations

import hashlib
import logging
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from packaging.version import Version

from kernelhub import settings
from kernelhub._version import __version__
from kernelhub.errors import InputError, IntegrityError, KernelHubError
from kernelhub.sources import RemoteFile

from .hub_calls import HubCalls
from .hub_errors import commit_error, library_errors
from .uploads import Upload, make_additions, shared_contents

if TYPE_CHECKING:
    from huggingface_hub import CommitInfo, HfApi

REPO_TYPE = "kernel"
_SILENCE = 300.0


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
        silence: seconds without a byte from the Hub after which a request has failed.
        timeout: seconds that everything may take together, from now on; None takes that of the
            settings.
        sleep: waits that many seconds (tests pass their own).

    Every method that asks the Hub raises HubUnavailable once the time is over.

    Raises:
        InputError: the endpoint is no http or https URL.
    """

    def __init__(
        self,
        endpoint: str,
        token: str | None = None,
        *,
        silence: float = _SILENCE,
        timeout: float | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if urlsplit(endpoint).scheme not in ("http", "https") or not urlsplit(endpoint).netloc:
            raise InputError(
                f"{endpoint!r} is no address of a Hub", hint="for example http://127.0.0.1:8765"
            )
        self.endpoint = endpoint.rstrip("/")
        self._token = token
        self._calls = HubCalls(
            self.endpoint,
            silence=silence,
            timeout=settings.current().publish_timeout if timeout is None else timeout,
            sleep=sleep,
        )
        self._api = _open_api(self.endpoint, token)
        self._trees: dict[tuple[str, str], tuple[RemoteFile, ...]] = {}  # commits do not change

    def pause(self, seconds: float, failure: KernelHubError) -> None:
        """Wait before something is sent again that failed so.

        Raises:
            HubUnavailable: the time would be over then.
        """
        self._calls.pause(seconds, failure)

    def refs(self, repo_id: str) -> Refs:
        """All branches and pull requests.

        Raises:
            RepositoryNotFound: no such repository, or the token does not reach it.
        """
        found = self._calls.again(
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
        self._calls.again(
            f"create {repo_id}",
            lambda: self._api.create_repo(
                repo_id, repo_type=REPO_TYPE, private=private or None, exist_ok=True
            ),
        )

    def create_branch(self, repo_id: str, branch: str, start: str | None) -> None:
        """Create a branch at a commit; one that is there already is left as it is."""
        self._calls.again(
            f"create branch {branch} of {repo_id}",
            lambda: self._api.create_branch(
                repo_id, branch=branch, revision=start, repo_type=REPO_TYPE, exist_ok=True
            ),
        )

    def delete_branch(self, repo_id: str, branch: str) -> None:
        """Delete a branch.

        Raises:
            VersionNotFound: there is none.
        """
        self._calls.again(
            f"delete branch {branch} of {repo_id}",
            lambda: self._api.delete_branch(repo_id, branch=branch, repo_type=REPO_TYPE),
        )

    def tree(self, repo_id: str, commit: str) -> tuple[RemoteFile, ...]:
        """Every file at a commit, from one recursive listing."""
        known = self._trees.get((repo_id, commit))
        if known is not None:
            return known
        from huggingface_hub.hf_api import RepoFile

        entries = self._calls.again(
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
            if isinstance(entry, RepoFile)
        )
        self._trees[repo_id, commit] = files
        return files

    def download(self, repo_id: str, commit: str, files: Iterable[RemoteFile], into: Path) -> None:
        """Write files below `into` under their repository paths, each checked against its id.

        Raises:
            IntegrityError: the bytes that arrived are not those of the listing.
        """
        from huggingface_hub import hf_hub_download

        with tempfile.TemporaryDirectory() as cache:
            for file in files:
                name = file.path
                got = self._calls.again(
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
        from huggingface_hub import CommitOperationDelete

        additions = make_additions(uploads, progress, self._calls.check)
        shared = shared_contents(additions)
        deleted = [CommitOperationDelete(path, is_folder=False) for path in deletions]

        def send() -> CommitInfo:
            if shared:  # once, however many variants carry it
                self._api.preupload_lfs_files(
                    repo_id,
                    shared,
                    repo_type=REPO_TYPE,
                    revision=branch,
                    create_pr=create_pr,
                    free_memory=False,
                )
            return self._api.create_commit(
                repo_id,
                [*additions, *deleted],
                repo_type=REPO_TYPE,
                revision=branch,
                parent_commit=parent,
                commit_message=message,
                commit_description=description,
                create_pr=create_pr,
            )

        try:
            made = self._calls.once(send)
        except library_errors() as error:
            raise commit_error(error, f"commit to {branch} of {repo_id}") from error
        return Committed(oid=made.oid, url=str(made.commit_url), pull_request=made.pr_url)


def _is(content: bytes, file: RemoteFile) -> bool:
    if file.sha256 is not None:
        return hashlib.sha256(content).hexdigest() == file.sha256
    header = f"blob {len(content)}\0".encode()
    return hashlib.sha1(header + content, usedforsecurity=False).hexdigest() == file.git_sha1


def quiet_library() -> None:
    """Stop huggingface_hub's own bars and warnings in this process; the commands have theirs."""
    from huggingface_hub.utils import logging as library_logging
    from huggingface_hub.utils.tqdm import disable_progress_bars

    disable_progress_bars()
    library_logging.set_verbosity(logging.ERROR)


def _open_api(endpoint: str, token: str | None) -> HfApi:
    import huggingface_hub
    from huggingface_hub import HfApi, constants

    if Version(huggingface_hub.__version__) < Version("2.3"):
        # Before 2.3 `create_commit` refuses the type by this list alone; its requests are the same.
        types = constants.REPO_TYPES
        if REPO_TYPE not in types:
            types.append(REPO_TYPE)
    return HfApi(
        endpoint=endpoint, token=token, library_name="kernel-builder", library_version=__version__
    )
