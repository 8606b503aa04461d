"""All repositories below the root, and the locks that order their writers.

    <root>/kernels/<namespace>/<name>.git     a bare git repository; LFS objects in its lfs/
    <root>/.hub/locks, .hub/incoming          locks; files and repositories that are not whole yet

A repository appears and disappears by one rename. One writer at a time per repository, across
threads and processes; readers need no lock, because objects are written before a ref names them.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import filelock
from dulwich.errors import NotGitRepository

from .address import PLURALS, RepoId, is_name
from .refusal import Refusal, no_repository
from .repository import Repository

_UNFINISHED = "hub.writing"
_ABANDONED_SECONDS = 2 * 24 * 3600


class Repositories:
    """The folder that the Hub serves."""

    def __init__(self, root: Path, *, lock_seconds: float) -> None:
        self.root = root
        self.incoming = root / ".hub" / "incoming"
        self._locks = root / ".hub" / "locks"
        self._lock_seconds = lock_seconds
        for folder in (self.incoming, self._locks):
            folder.mkdir(parents=True, exist_ok=True)
        self._sweep()

    def _sweep(self) -> None:
        """Remove what killed servers left unfinished; young ones may be another's work."""
        oldest = time.time() - _ABANDONED_SECONDS
        for path in self.incoming.iterdir():
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_mtime >= oldest:
                    continue
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink()

    def folder(self, repo_id: RepoId) -> Path:
        return self.root / repo_id.plural / repo_id.namespace / f"{repo_id.name}.git"

    def exists(self, repo_id: RepoId) -> bool:
        return self.folder(repo_id).is_dir()

    def all(self, kind: str) -> list[RepoId]:
        """Every repository of a kind, sorted."""
        folders = (self.root / PLURALS[kind]).glob("*/*.git")
        names = sorted((folder.parent.name, folder.name.removesuffix(".git")) for folder in folders)
        return [RepoId.of(kind, *pair) for pair in names if all(map(is_name, pair))]

    def has_namespace(self, namespace: str) -> bool:
        return is_name(namespace) and any(
            (self.root / plural / namespace).is_dir() for plural in PLURALS.values()
        )

    @contextmanager
    def reading(self, repo_id: RepoId) -> Iterator[Repository]:
        """Open a repository.

        Raises:
            Refusal: 404 RepoNotFound.
        """
        if not self.exists(repo_id):
            raise no_repository(repo_id)
        try:
            with Repository(self.folder(repo_id)) as repository:
                yield repository
        except (FileNotFoundError, NotGitRepository, KeyError) as error:
            if self.exists(repo_id):
                raise
            raise no_repository(repo_id) from error  # deleted while it was read

    @contextmanager
    def writing(self, repo_id: RepoId) -> Iterator[Repository]:
        """Open a repository as its only writer.

        Raises:
            Refusal: 404 RepoNotFound; 503, another writer did not finish in time.
        """
        with self._locked(repo_id), self.reading(repo_id) as repository:
            mark = repository.folder / _UNFINISHED
            if mark.exists():
                _clear_stale_locks(repository.folder)
            mark.touch()
            try:
                yield repository
            finally:  # only a process that dies leaves the mark behind
                mark.unlink(missing_ok=True)

    def create(self, repo_id: RepoId, *, private: bool) -> None:
        """Make a repository with one commit on `main`.

        Raises:
            Refusal: 409, it exists.
        """
        draft = self.incoming / f"repository-{secrets.token_hex(8)}"
        with self._locked(repo_id):
            if self.exists(repo_id):
                raise Refusal(409, f"You already created this {repo_id.kind} repo: {repo_id}")
            try:
                Repository.initialise(draft, private=private)
                self.folder(repo_id).parent.mkdir(parents=True, exist_ok=True)
                draft.rename(self.folder(repo_id))
            finally:
                shutil.rmtree(draft, ignore_errors=True)

    def delete(self, repo_id: RepoId) -> None:
        """Remove a repository with all it holds.

        Raises:
            Refusal: 404 RepoNotFound.
        """
        grave = self.incoming / f"deleted-{secrets.token_hex(8)}"
        with self._locked(repo_id):
            self._take(repo_id, grave)
        shutil.rmtree(grave, ignore_errors=True)

    def move(self, old: RepoId, new: RepoId) -> None:
        """Rename a repository. The old name is free afterwards; it does not redirect.

        Raises:
            Refusal: 404 RepoNotFound; 409, the new name is taken.
        """
        first, second = sorted((old, new), key=str)  # always the same order: no deadlock
        with self._locked(first), self._locked(second):
            if self.exists(new):
                raise Refusal(409, f"{new} exists")
            self.folder(new).parent.mkdir(parents=True, exist_ok=True)
            self._take(old, self.folder(new))

    def _take(self, repo_id: RepoId, target: Path) -> None:
        try:
            self.folder(repo_id).rename(target)
        except FileNotFoundError as error:
            raise no_repository(repo_id) from error

    @contextmanager
    def _locked(self, repo_id: RepoId) -> Iterator[None]:
        name = f"{repo_id.plural}--{repo_id.namespace}--{repo_id.name}.lock"
        # A lock object per use: the same one would let a thread of this process in twice.
        lock = filelock.FileLock(self._locks / name, timeout=self._lock_seconds)
        try:
            lock.acquire()
        except filelock.Timeout as error:
            raise Refusal(
                503, f"another write to {repo_id} is in progress", headers={"Retry-After": "5"}
            ) from error
        try:
            yield
        finally:
            lock.release()


def _clear_stale_locks(folder: Path) -> None:
    """Remove git's lock files of a writer that died: we hold the lock that all writers take."""
    for top in ("objects", "refs"):
        for parent, _, files in os.walk(folder / top):
            for file in files:
                if file.endswith(".lock"):
                    (Path(parent) / file).unlink(missing_ok=True)
    for file in ("packed-refs.lock", "HEAD.lock", "config.lock"):
        (folder / file).unlink(missing_ok=True)
