"""Kernels on this disk against their digest, lock and signature; and what to clean up."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from . import signatures
from .disk import DAY, remove, touched
from .errors import (
    FormatError,
    HubError,
    IntegrityError,
    KernelHubError,
    LockError,
    NotCached,
    NotFoundError,
)
from .formats.lock import Lock, LockedKernel
from .hub_place import HubPlace
from .locks import hold_to_version
from .places import Ready
from .policies import Rules
from .receipts import Receipt
from .resolution import Way
from .signature_file import read_bundle
from .store import LISTING, Repository, Store, Stored, hub_folder

_NO_RECEIPT = "{}: its receipt is missing or damaged, so that no load sees it"
_LEFT = "left by a process that ended"
_OFFLINE = Way(connect=None, remaining=lambda: 10.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """What was found of one variant.

    Attributes:
        hub: folder of the Hub that it came from.
        stored: the variant.
        locked: whether the lock pins its commit.
        signature: who signed it, "none", "unverified" where no policy names a signer for it.
        fault: what is wrong with it, empty if nothing is.
    """

    hub: str
    stored: Stored
    locked: bool
    signature: str
    fault: str = ""


def audit(store: Store, rules: Rules, lock: Lock | None, *, offline: bool) -> Iterator[Audit]:
    """Check each variant on this disk. Reads every byte of them, and asks nobody.

    Args:
        lock: the project's, None where there is none.
        offline: whether Sigstore's trust root may not be renewed over the network.
    """
    for hub, stored in store.everything():
        receipt = stored.receipt
        locked = _pinned(lock, receipt.repo_id, receipt.commit)
        signature = "none"
        fault = ""
        try:
            place = place_of(stored, locked)
            ready = place.verified(stored.folder, receipt.variant)
            if locked is not None:
                hold_to_version(locked, place.metadata(receipt.variant))
            signature = _signature(ready, receipt.repo_id, rules, offline=offline)
        except (IntegrityError, FormatError, LockError, NotCached) as error:
            fault = str(error)
        except KernelHubError as error:
            signature, fault = "refused", str(error)
        yield Audit(
            hub=hub, stored=stored, locked=locked is not None, signature=signature, fault=fault
        )
    for hub, stored in _without_receipt(store):
        locked = _pinned(lock, stored.receipt.repo_id, stored.receipt.commit)
        yield Audit(
            hub=hub,
            stored=stored,
            locked=locked is not None,
            signature="none",
            fault=_NO_RECEIPT.format(stored.folder),
        )


def _without_receipt(store: Store) -> Iterator[tuple[str, Stored]]:
    """Folders of variants that no load sees, with an empty receipt in place of the damaged one."""
    for repository in store.repositories():
        for folder in sorted(repository.folder.glob("*/build/*")):
            commit = folder.parents[1].name
            if folder.is_dir() and repository.find(commit, folder.name) is None:
                receipt = Receipt(
                    repo_id=repository.repo_id,
                    commit=commit,
                    variant=folder.name,
                    files={},
                    size=0,
                    installed=0.0,
                )
                yield repository.folder.parent.name, Stored(folder=folder, receipt=receipt)


def missing(store: Store, lock: Lock) -> tuple[LockedKernel, ...]:
    """Kernels that the project asks for of which no variant is on this disk."""
    return tuple(
        kernel
        for kernel in lock.kernels
        if kernel.requirement is not None
        and not store.repository(kernel.repo_id).variants(kernel.commit)
    )


def place_of(stored: Stored, locked: LockedKernel | None, way: Way = _OFFLINE) -> HubPlace:
    """The place that a stored variant belongs to."""
    receipt = stored.receipt
    repository = Repository(stored.folder.parents[2], receipt.repo_id)
    return HubPlace(repository, receipt.commit, way, locked.variants if locked else None)


def _pinned(lock: Lock | None, repo_id: str, commit: str) -> LockedKernel | None:
    held = lock.of(repo_id) if lock is not None else ()
    return next((kernel for kernel in held if kernel.commit == commit), None)


def _signature(ready: Ready, repo_id: str, rules: Rules, *, offline: bool) -> str:
    required = rules.signature_required_by(repo_id)
    bundle = read_bundle(ready.folder)
    signers = rules.signers(repo_id)
    if required is None and (bundle is None or not signers):
        return "none" if bundle is None else "unverified"
    return signatures.check(ready.folder, ready.manifest, signers, offline=offline).name


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """Something that was removed, or would be."""

    path: Path
    size: int
    why: str


def prune(
    store: Store, lock: Lock | None, *, older_than: float, everything: bool, dry_run: bool
) -> tuple[Removed, ...]:
    """Remove variants that are old and in no lock, and what dead processes left.

    Args:
        lock: the project's; what it pins is kept.
        older_than: seconds since a variant was installed.
        everything: whether age does not matter.
        dry_run: whether nothing is removed.
    """
    now = time.time()
    removed: list[Removed] = []
    for _, stored in store.everything():
        receipt = stored.receipt
        age = now - receipt.installed
        if _pinned(lock, receipt.repo_id, receipt.commit) or not (everything or age > older_than):
            continue
        why = "not in the lock" if everything else f"installed {age / DAY:.0f} days ago"
        removed.append(Removed(path=stored.folder, size=receipt.size, why=why))
        if not dry_run:
            Repository(stored.folder.parents[2], receipt.repo_id).remove(
                receipt.commit, receipt.variant
            )
    for path, why in _leftovers(store, now):
        removed.append(Removed(path=path, size=_size(path), why=why))
        if not dry_run:
            remove(path)
    return tuple(removed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Repaired:
    """A variant that was damaged. `error` says why it could not be replaced, if it could not."""

    stored: Stored
    fault: str
    error: str = ""


def repair(store: Store, endpoint: str, way: Way, lock: Lock | None) -> tuple[Repaired, ...]:
    """Check each variant and download again what is damaged.

    What is damaged and cannot be had again (offline, or from another Hub than `endpoint`) is
    removed: a load would refuse it. What cannot be checked stays.
    """
    found: list[Repaired] = []
    for hub, stored in tuple(store.everything()):
        receipt = stored.receipt
        locked = _pinned(lock, receipt.repo_id, receipt.commit)
        reachable = way if hub == hub_folder(endpoint) else _OFFLINE
        try:
            place_of(stored, locked, reachable).verified(stored.folder, receipt.variant)
        except (NotCached, HubError) as error:  # what it should be is not known, so it stays
            found.append(Repaired(stored=stored, fault="cannot be checked", error=str(error)))
        except (IntegrityError, FormatError) as error:
            again = _replace(stored, locked, reachable)
            found.append(Repaired(stored=stored, fault=str(error), error=again))
    for hub, stored in tuple(_without_receipt(store)):
        receipt = stored.receipt
        locked = _pinned(lock, receipt.repo_id, receipt.commit)
        reachable = way if hub == hub_folder(endpoint) else _OFFLINE
        again = _replace(stored, locked, reachable)
        fault = _NO_RECEIPT.format(stored.folder)
        found.append(Repaired(stored=stored, fault=fault, error=again))
    return tuple(found)


def _replace(stored: Stored, locked: LockedKernel | None, way: Way) -> str:
    """Remove a variant and what is noted of its commit, and fetch it; why that failed, or "".

    The list of the commit's files may be what is damaged, so it is asked for anew; where it cannot
    be had, the old one stays for the other variants.
    """
    receipt = stored.receipt
    repository = Repository(stored.folder.parents[2], receipt.repo_id)
    listing = repository.note(receipt.commit, LISTING)
    repository.remove(receipt.commit, receipt.variant)
    repository.forget_note(receipt.commit, LISTING)
    try:
        place_of(stored, locked, way).ready(receipt.variant)
    except (IntegrityError, FormatError, NotFoundError, HubError) as error:
        others = repository.variants(receipt.commit)
        if listing is not None and others and repository.note(receipt.commit, LISTING) is None:
            repository.keep_note(receipt.commit, LISTING, listing)
        return f"removed: {error}"
    return ""


def _leftovers(store: Store, now: float) -> Iterator[tuple[Path, str]]:
    """What processes that died have left, a day old at least."""
    places = [*store.root.glob("*/*/incoming/*"), *store.scratch().glob("*")]
    for path in sorted(places):
        with contextlib.suppress(OSError):  # its process has just ended, and took it along
            if now - touched(path) > DAY:
                yield path, _LEFT
    for repository in store.repositories():
        yield from ((path, _LEFT) for path in repository.unfinished())


def _size(path: Path) -> int:
    total = 0
    for file in [path, *path.rglob("*")]:
        with contextlib.suppress(OSError):  # gone meanwhile
            total += file.stat().st_size if file.is_file() else 0
    return total
