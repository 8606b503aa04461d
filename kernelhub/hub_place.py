"""The variants of one kernel at a commit on a Hub, kept in the store once they are here."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from . import origins
from .disk import discard, temporary_folder, translated, write_whole
from .errors import (
    FormatError,
    IntegrityError,
    NotCached,
    NotFoundError,
    Problem,
    StoreError,
    about,
)
from .formats.content import content_digest
from .formats.digest import is_hashed
from .formats.metadata import Metadata, parse_metadata
from .formats.requirement import Requirement
from .hashing import FileId, matches
from .listings import BUILD, parse_listing, place_in_build, render_listing
from .places import Ready
from .receipts import Receipt
from .resolution import Resolved, Way, resolve
from .sources import RemoteFile, Source
from .store import LISTING, Repository, Stored
from .verify import METADATA, Manifest, hash_folder, manifest_of, renamed, verify_once

logger = logging.getLogger(__name__)


def resolve_built(
    requirement: Requirement,
    repository: Repository,
    way: Way,
    *,
    tell: bool = True,
    memory: bool = True,
) -> Resolved:
    """The commit that a requirement means now, of a version that has builds if there is one.

    Raises:
        As `resolution.resolve` and, for an unsafe listing, IntegrityError.
    """

    def holds_builds(commit: str) -> bool:
        return bool(HubPlace(repository, commit, way).variants())

    with about(requirement.repo_id):
        return resolve(requirement, repository, way, holds_builds, tell=tell, memory=memory)


class HubPlace:
    """Variants at one commit of a repository on a Hub, kept in the store."""

    def __init__(
        self,
        repository: Repository,
        commit: str,
        way: Way,
        locked: Mapping[str, str] | None = None,
    ) -> None:
        """`locked`: the content digest that each variant has to have; None where no lock says."""
        self._repository = repository
        self._commit = commit
        self._way = way
        self._locked = locked
        self._parsed: dict[str, Metadata] = {}

    def variants(self) -> tuple[str, ...]:
        return tuple(self._files)

    def is_seen(self) -> bool:
        """Whether the list of files is the Hub's, not only that of a bundle; asks where it can."""
        return self._asked is not None or not origins.is_unseen(self._repository, self._commit)

    @cached_property
    def _asked(self) -> tuple[RemoteFile, ...] | None:
        """What the Hub itself lists, where that had to be asked in spite of what is kept."""
        return origins.ask_the_hub(self._repository, self._commit, self._way)

    @cached_property
    def _files(self) -> Mapping[str, tuple[RemoteFile, ...]]:
        """Files of each variant, without what is never used (byte code)."""
        grouped: dict[str, list[RemoteFile]] = {}
        for file in self._listing():
            if (place := place_in_build(file.path)) is not None:
                grouped.setdefault(place[0], []).append(file)
        return {variant: tuple(files) for variant, files in sorted(grouped.items())}

    def _listing(self) -> tuple[RemoteFile, ...]:
        """The commit's files. A list of none is neither kept nor believed: the Hub is asked."""

        def known() -> tuple[RemoteFile, ...] | None:
            return parse_listing(self._repository.note(self._commit, LISTING))

        if self._asked is not None:
            return self._asked
        if kept := known():
            return kept
        with self._repository.lock(self._commit, self._way.remaining() / 2, until=known):
            if kept := known():
                return kept
            source = self._connect("the list of its files")
            files = source.listing(self._repository.repo_id, self._commit)
            if files:
                self._repository.keep_note(self._commit, LISTING, render_listing(files))
        return files

    def listing_bytes(self) -> bytes:
        """The list of the commit's files, as the store keeps it."""
        return render_listing(self._listing())

    def metadata(self, variant: str) -> Metadata:
        if variant in self._parsed:
            return self._parsed[variant]
        return self._parse(variant, self.metadata_bytes(variant), f"{variant}/{METADATA}")

    def _parse(self, variant: str, data: bytes, title: str) -> Metadata:
        """Bytes that were held against the listing: the same each time, so parsed once."""
        if variant not in self._parsed:
            self._parsed[variant] = parse_metadata(data, title)
        return self._parsed[variant]

    def metadata_bytes(self, variant: str) -> bytes:
        """The bytes of a variant's metadata.json, held against the listing."""
        file = self._file(variant, METADATA)
        if (data := self._kept_metadata(variant, file.id)) is not None:
            return data
        name = f"metadata/{variant}.json"

        def known() -> bytes | None:
            return self._kept_metadata(variant, file.id)

        with self._repository.lock(self._commit, self._way.remaining() / 2, until=known):
            if (data := known()) is not None:
                return data
            source = self._connect("its metadata")
            with temporary_folder() as folder:
                source.fetch(self._repository.repo_id, self._commit, [file], folder)
                data = (folder / file.path).read_bytes()
            self._repository.keep_note(self._commit, name, data)
        return data

    def _kept_metadata(self, variant: str, expected: FileId) -> bytes | None:
        for name in (f"build/{variant}/{METADATA}", f"metadata/{variant}.json"):
            data = self._repository.note(self._commit, name)
            if data is not None and matches(data, expected):
                return data
        return None

    def _file(self, variant: str, inside: str) -> RemoteFile:
        path = f"{BUILD}{variant}/{inside}"
        found = next((file for file in self._files.get(variant, ()) if file.path == path), None)
        if found is None:
            problem = Problem(message="is missing", path=path, code="missing")
            raise FormatError(f"{self._repository.repo_id}: {variant}", [problem])
        return found

    def ready(self, variant: str) -> Ready:
        """The stored copy if it is whole and right, else a fresh one.

        A copy that is wrong is replaced once; where that cannot be done it is refused.
        """
        self.variants()  # listed before the commit's lock is taken, which listing takes as well
        wrong: IntegrityError | None = None
        if (stored := self._repository.find(self._commit, variant)) is not None:
            try:
                return self._checked(stored)
            except IntegrityError as error:
                wrong = error
        return self._fresh(variant, wrong)

    def _checked(self, stored: Stored) -> Ready:
        return self.verified(stored.folder, stored.receipt.variant)

    def verified(self, folder: Path, variant: str) -> Ready:
        """A folder that claims to hold a variant of this place.

        Raises:
            IntegrityError: it does not.
        """
        manifest = self._manifest(folder, variant)
        verify_once(folder, manifest)
        return Ready(folder=folder, manifest=manifest)

    def _manifest(self, folder: Path, variant: str) -> Manifest:
        """What each file must be: by the digest of the publisher, else by the Hub's listing."""
        expected = self._file(variant, METADATA).id
        try:
            data = (folder / METADATA).read_bytes()
        except OSError as error:
            raise IntegrityError(f"{folder / METADATA} cannot be read: {error}") from error
        if not matches(data, expected):
            raise IntegrityError(
                f"{folder} does not hold what was published",
                faults={METADATA: f"is not {expected.algorithm} {expected.value}"},
            )
        metadata = self._parse(variant, data, str(folder / METADATA))
        if self._locked is not None:
            return self._locked_manifest(folder, variant, data, metadata)
        if metadata.digest is not None:
            return manifest_of(metadata.digest, str(folder))
        return {path: file.id for path, file in self.files(variant).items() if is_hashed(path)}

    def _locked_manifest(
        self, folder: Path, variant: str, data: bytes, metadata: Metadata
    ) -> Manifest:
        """What the metadata states, or without a digest what is there, if the lock pins that."""
        try:
            digest = metadata.digest or hash_folder(folder)
        except OSError as error:
            raise IntegrityError(f"{folder} cannot be read: {error}") from error
        manifest = manifest_of(digest, str(folder))
        pinned, found = (self._locked or {}).get(variant), content_digest(data, digest)
        if pinned != found:
            raise IntegrityError(
                f"{folder} is not what the lock pins",
                faults={variant: f"locked is {pinned or 'no such variant'}, found {found}"},
                hint=f"if {self._repository.repo_id} may change, run"
                f" `kernelhub lock --upgrade {self._repository.repo_id}` and review the change",
            )
        return manifest

    def files(self, variant: str) -> dict[str, RemoteFile]:
        """The files of a variant that are used, by path relative to it."""
        start = f"{BUILD}{variant}/"
        return {file.path.removeprefix(start): file for file in self._files[variant]}

    def _fresh(self, variant: str, wrong: IntegrityError | None) -> Ready:
        repository, commit = self._repository, self._commit
        with repository.lock(
            commit,
            self._way.remaining(),
            lambda: repository.arrived(commit, variant),
            until=lambda: wrong is None and repository.find(commit, variant),
        ) as held:
            if (stored := self._repository.find(self._commit, variant)) is not None:
                try:
                    return self._checked(stored)  # another process has brought it meanwhile
                except IntegrityError as error:
                    wrong = error
            if wrong is None:
                return self._download(variant, held=held)
            return self._repair(variant, wrong, held=held)

    def _repair(self, variant: str, wrong: IntegrityError, *, held: bool) -> Ready:
        """Replace a copy that is wrong, or refuse it."""
        if self._way.connect is None:
            wrong.hint = "it cannot be downloaded again offline: go online, or remove that folder"
            raise wrong
        logger.warning("%s; downloading %s again", wrong, variant)
        try:
            return self._download(variant, held=held)
        except StoreError as error:
            wrong.hint = f"it could not be replaced: {error.message}"
            raise wrong from error

    def _download(self, variant: str, *, held: bool) -> Ready:
        try:
            return self._fetch(variant, held=held)
        except (IntegrityError, NotFoundError):
            if not self._is_listed_otherwise(variant):
                raise
        return self._fetch(variant, held=held)

    def _is_listed_otherwise(self, variant: str) -> bool:
        """Ask for the list of files anew, once: the one that was kept may be what is wrong."""
        if self._way.connect is None or self._asked is not None:
            return False
        before = self._files
        self._asked = self._way.connect(False).listing(self._repository.repo_id, self._commit)
        del self._files
        if variant not in self._files or self._files == before:
            return False
        self._parsed.clear()
        self._repository.keep_note(self._commit, LISTING, render_listing(self._asked))
        return True

    def _fetch(self, variant: str, *, held: bool) -> Ready:
        files = self.files(variant)
        size = sum(file.size for file in files.values())
        source = self._connect("its files")
        repository = self._repository
        with repository.incoming(self._commit, variant, size, shared=held) as incoming:
            staged = incoming / "build" / variant
            if (metadata := self._kept_metadata(variant, files[METADATA].id)) is not None:
                with translated(staged, size):
                    write_whole(staged / METADATA, metadata)
            source.fetch(repository.repo_id, self._commit, files.values(), incoming)
            self._verify_delivered(incoming, staged, variant)
            receipt = Receipt(
                repo_id=repository.repo_id,
                commit=self._commit,
                variant=variant,
                files={path: file.id for path, file in files.items()},
                size=size,
                installed=time.time(),
            )
            stored = repository.install(staged, receipt)
            renamed(staged, stored.folder)
            discard(incoming)
        return self._checked(stored)

    def _verify_delivered(self, incoming: Path, staged: Path, variant: str) -> None:
        try:
            verify_once(staged, self._manifest(staged, variant))
        except IntegrityError as error:
            discard(incoming)
            error.hint = error.hint or (
                f"the Hub delivered what it lists for {self._repository.repo_id}@{self._commit},"
                " and the kernel's own digest says otherwise: its publisher has to repair that"
            )
            raise

    def _connect(self, what: str) -> Source:
        if self._way.connect is None:
            raise NotCached(
                f"offline, and {what} ({self._repository.repo_id}@{self._commit[:12]}) is not in"
                f" {self._repository.folder}",
                hint="load it once online with the same HF_ENDPOINT and KERNELHUB_CACHE",
            )
        return self._way.connect(False)
