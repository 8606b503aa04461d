"""Local copies of published kernels: whole or not there, shared by processes and users.

    <cache>/v1/<hub>/<org>--<name>/
      remembered.json                 what the Hub said last
      <commit>/listing.json           ids of every file below build/ at that commit
      <commit>/origin.json            there while these ids are known from a bundle alone
      <commit>/metadata/<variant>.json
      <commit>/receipts/<variant>.json
      <commit>/build/<variant>/...    plain files
      incoming/                       private to who downloads; cleaned up later
      locks/

A variant is visible once its receipt and its folder are both there; the folder is renamed into
place whole. `<hub>` keeps apart what different endpoints call the same repository.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from . import remembered
from .disk import (
    discard,
    free_bytes,
    remove,
    sibling,
    stale,
    store_error,
    sync_folder,
    touched,
    translated,
    write_whole,
)
from .errors import StoreError
from .process_lock import Locks
from .receipts import Receipt, parse_receipt, render_receipt
from .remembered import Remembered

logger = logging.getLogger(__name__)

LAYOUT = "v1"
LISTING = "listing.json"
"""The note that holds the list of a commit's files."""
_LEFTOVER_AGE = 7 * 24 * 3600.0
_told: set[Path] = set()  # damaged files that were spoken of
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A variant that is whole on this disk."""

    folder: Path
    receipt: Receipt


class Store:
    """All copies below one cache folder."""

    def __init__(self, cache: Path, endpoint: str) -> None:
        self._root = cache / LAYOUT
        self._endpoint = endpoint

    def repository(self, repo_id: str) -> Repository:
        """The copies of one repository of this store's Hub."""
        name = repo_id.replace("/", "--")
        return Repository(self._root / hub_folder(self._endpoint) / name, repo_id)

    @property
    def root(self) -> Path:
        """The folder below which everything is."""
        return self._root

    def scratch(self) -> Path:
        """A folder on the same file system, for what is not to be seen yet."""
        return self._root / "scratch"

    def repositories(self) -> Iterator[Repository]:
        """The copies of each repository of every Hub."""
        for folder in sorted(self._root.glob("*/*--*")):
            if folder.parent != self.scratch():
                yield Repository(folder, folder.name.replace("--", "/", 1))

    def everything(self) -> Iterator[tuple[str, Stored]]:
        """Each stored variant of every Hub, with the name of the Hub's folder."""
        for receipt in sorted(self._root.glob("*/*/*/receipts/*.json")):
            folder = receipt.parents[2]
            repository = Repository(folder, folder.name.replace("--", "/", 1))
            found = repository.find(receipt.parents[1].name, receipt.stem)
            if found is not None:
                yield folder.parent.name, found


def hub_folder(endpoint: str) -> str:
    """A folder name for an endpoint: its host, and enough of a hash to tell its like apart."""
    host = re.sub(r"[^a-z0-9.-]", "-", (urlsplit(endpoint).hostname or "hub").lower())[:60]
    return f"{host}-{hashlib.sha256(endpoint.encode()).hexdigest()[:8]}"


class Repository:
    """The copies of one repository, and what is remembered of it."""

    def __init__(self, folder: Path, repo_id: str) -> None:
        self.folder = folder
        self.repo_id = repo_id
        self._place = str(folder)
        self.lock = Locks(folder / "locks").hold

    def arrived(self, commit: str, variant: str) -> int:
        """Bytes of a variant that whoever holds its lock has downloaded so far."""
        total = 0
        for path in (self.folder / "incoming" / f"{commit[:16]}-{variant}").rglob("*"):
            with contextlib.suppress(OSError):  # finished, and renamed, meanwhile
                total += path.stat().st_size
        return total

    def remembered(self) -> Remembered:
        """What the Hub said; empty if nothing is known or the file is damaged."""
        path = self.folder / "remembered.json"
        data = self._read(path.name)
        if data is None:
            return Remembered()
        found = remembered.parse(data)
        if found is None:
            level = logging.DEBUG if path in _told else logging.WARNING
            logger.log(level, "%s is damaged or of a newer release, and is not used", path)
            _told.add(path)
        return found or Remembered()

    def remember(self, change: Callable[[Remembered], Remembered]) -> None:
        """Change what is remembered; on a disk that cannot be written nothing is."""
        with self.lock("remembered", 10.0):
            before = self.remembered()
            after = change(before)
            if after == before:
                return
            try:
                write_whole(self.folder / "remembered.json", remembered.render(after))
            except OSError as error:
                logger.debug("nothing can be remembered of %s: %s", self.repo_id, error)

    def commits(self) -> frozenset[str]:
        """Commits of which at least one variant is whole on this disk."""
        receipts = self.folder.glob("*/receipts/*.json")
        pairs = {(path.parents[1].name, path.stem) for path in receipts}
        return frozenset(c for c, v in pairs if _COMMIT.fullmatch(c) and self.find(c, v))

    def variants(self, commit: str) -> tuple[str, ...]:
        """Variants of a commit that are whole on this disk."""
        names = sorted(path.stem for path in (self.folder / commit / "receipts").glob("*.json"))
        return tuple(name for name in names if self.find(commit, name))

    def note(self, commit: str, name: str) -> bytes | None:
        """Bytes that were kept beside a commit ("listing.json", "metadata/torch-cpu.json")."""
        return self._read(f"{commit}/{name}")

    def _read(self, inside: str) -> bytes | None:
        """Bytes of a file of this folder; who waits for one asks often, so no `Path` is made."""
        try:
            with open(f"{self._place}/{inside}", "rb", buffering=0) as stream:  # noqa: PTH123
                return stream.read()
        except OSError:
            return None

    def keep_note(self, commit: str, name: str, data: bytes) -> None:
        """Keep bytes for `note`; on a disk that cannot be written nothing is kept."""
        try:
            write_whole(self.folder / commit / name, data)
        except OSError as error:
            logger.debug("%s of %s@%s is not kept: %s", name, self.repo_id, commit, error)

    def find(self, commit: str, variant: str) -> Stored | None:
        """The copy of a variant, or None if it is not there whole."""
        data = self.note(commit, f"receipts/{variant}.json")
        receipt = parse_receipt(data, commit, variant) if data is not None else None
        folder = self.folder / commit / "build" / variant
        if receipt is None or not folder.is_dir():
            return None
        return Stored(folder=folder, receipt=receipt)

    @contextlib.contextmanager
    def incoming(self, commit: str, variant: str, needed: int, *, shared: bool) -> Iterator[Path]:
        """A private folder to download into.

        With `shared` (the caller holds the commit's lock) it has a lasting name, so that what a
        process left when it died is continued by the next; by the next of the same user, since
        another's files cannot be written.

        Raises:
            StoreError: it cannot be made, or the disk has less than `needed` bytes free.
        """
        folder = self.folder / "incoming" / f"{commit[:16]}-{variant}"
        shared = shared and _is_own(folder)
        folder = folder if shared else sibling(folder)
        with translated(folder, needed):
            folder.mkdir(parents=True, exist_ok=True)
            self._clean(folder)
        self._check_space(folder, needed)
        try:
            yield folder
        finally:
            if not shared:
                discard(folder)

    def _check_space(self, folder: Path, needed: int) -> None:
        free = free_bytes(folder)
        if free is not None and free < needed:
            raise StoreError(
                f"the disk of {folder} has {free} bytes free, and {needed} bytes are needed there",
                hint="free some space; KERNELHUB_CACHE puts copies of kernels on another disk",
            )

    def install(self, staged: Path, receipt: Receipt) -> Stored:
        """Put a downloaded and verified folder into its place, whole.

        Raises:
            StoreError: the disk failed; what was there before is then still there, or nothing is.
        """
        place = self.folder / receipt.commit / "build" / receipt.variant
        name = f"receipts/{receipt.variant}.json"
        with translated(place):
            place.parent.mkdir(parents=True, exist_ok=True)
            if place.exists():
                self._throw_away(place)
            for folder in {staged, *(p for p in staged.rglob("*") if p.is_dir())}:
                sync_folder(folder)
            write_whole(self.folder / receipt.commit / name, render_receipt(receipt))
            try:
                staged.rename(place)
            except OSError as error:
                other = self.find(receipt.commit, receipt.variant)
                if other is None:
                    raise store_error(error, place) from error
                discard(staged)  # another process, without the lock, was first
            sync_folder(place.parent)
        return Stored(folder=place, receipt=receipt)

    def remove(self, commit: str, variant: str) -> None:
        """Take a variant out of the store; processes that have it loaded keep what they read.

        Raises:
            StoreError: the disk failed.
        """
        place = self.folder / commit / "build" / variant
        with translated(place):
            (self.folder / commit / "receipts" / f"{variant}.json").unlink(missing_ok=True)
            if place.exists():
                self._throw_away(place)
            if not any((self.folder / commit / "receipts").glob("*.json")):
                discard(self.folder / commit)

    def forget(self, commit: str) -> None:
        """Remove the copies of a commit and what is noted of it. Raises StoreError."""
        with translated(self.folder / commit):
            self._throw_away(self.folder / commit)

    def forget_note(self, commit: str, name: str) -> None:
        """Remove what `keep_note` kept."""
        with translated(self.folder):
            (self.folder / commit / name).unlink(missing_ok=True)

    def unfinished(self) -> Iterator[Path]:
        """Notes whose writers died before they had their names, a day ago or more."""
        for pattern in (".*", f"{'?' * 40}*/.*", f"{'?' * 40}*/*/.*"):
            yield from stale(self.folder, pattern)

    def _throw_away(self, place: Path) -> None:
        """Take a folder out of sight in one step, then remove it; readers keep what they opened."""
        trash = sibling(self.folder / "incoming" / "trash")
        trash.parent.mkdir(parents=True, exist_ok=True)
        place.rename(trash)
        discard(trash)

    def _clean(self, keep: Path) -> None:
        """Remove what processes left here that died long ago."""
        oldest = time.time() - _LEFTOVER_AGE
        for path in keep.parent.iterdir():
            with contextlib.suppress(OSError):  # somebody else was quicker
                if path != keep and touched(path) < oldest:
                    remove(path)
        for path in self.unfinished():
            remove(path)


def _is_own(folder: Path) -> bool:
    """Whether a folder is this user's, or is not there yet. True on Windows."""
    if os.name == "nt" or not folder.exists():
        return True
    return folder.stat().st_uid == os.geteuid()
