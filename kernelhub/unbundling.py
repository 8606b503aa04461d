"""From a bundle into the store. The format is in `formats.bundle`.

Nothing of a bundle becomes visible before all of it was read to its end and verified: against the
manifest, the lock in it, the digests of the kernels, and the caller's own lock where there is one.
"""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from . import origins, tar
from .disk import free_bytes, reading, translated
from .errors import FormatError, InputError, IntegrityError, LockError, StoreError
from .formats.bundle import (
    BLOB,
    MANIFEST,
    MOST_MANIFEST_BYTES,
    Bundle,
    BundledKernel,
    parse_bundle,
)
from .formats.content import METADATA
from .formats.lock import NAME as LOCK
from .formats.lock import Lock, LockedKernel, parse_lock
from .hashing import CHUNK
from .hub_place import HubPlace
from .listings import BUILD, parse_listing
from .locks import hold_to_version
from .receipts import Receipt
from .resolution import Way
from .store import LISTING, Repository, Store
from .syncing import remember_version

_LOCK_SECONDS = 30.0
_NO_WAY = Way(connect=None, remaining=lambda: 10.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unbundled:
    """A variant that came out of a bundle."""

    kernel: LockedKernel
    variant: str
    folder: Path


def read_bundle(
    path: Path, store: Store, *, own: Lock | None = None, own_counts: bool = True
) -> tuple[Unbundled, ...]:
    """Verify a bundle and put its kernels into the store.

    Args:
        own: the caller's lock; a kernel of the bundle that it does not pin to the same bytes is
            refused.
        own_counts: whether that lock is the user's own. Kernels that no such lock vouches for are
            marked, and run by no decision that was made for their commit (`origins`).

    Raises:
        InputError: there is no such file.
        IntegrityError: it is cut short, holds what no bundle holds, or bytes that are not those
            that it, the lock, or what this machine knows of the commit names. Nothing is then kept
            of it.
        FormatError: its manifest or lock is malformed.
        StoreError: the disk failed, or is too small.
    """
    with reading(path):
        if not path.is_file():
            raise InputError(f"{path} does not exist")
    scratch = store.scratch()
    with translated(scratch):
        scratch.mkdir(parents=True, exist_ok=True)
        temporary = tempfile.TemporaryDirectory(dir=scratch, prefix="bundle-")
    try:
        with temporary as folder:
            with reading(path), path.open("rb") as stream:
                bundle, lock = _unpack(stream, Path(folder))
            return _install_all(
                bundle, lock, Path(folder), store, own, pinned=own is not None and own_counts
            )
    finally:
        with contextlib.suppress(OSError):  # another process unpacks there
            scratch.rmdir()


def _unpack(stream: IO[bytes], folder: Path) -> tuple[Bundle, Lock]:
    """Every member, held against the manifest while it is read."""
    found = tar.members(stream)
    bundle = parse_bundle(_small(found, MANIFEST, MOST_MANIFEST_BYTES))
    text = _small(found, LOCK, MOST_MANIFEST_BYTES)
    if hashlib.sha256(text).hexdigest() != bundle.lock:
        raise IntegrityError("the lock in the bundle is not the one that it was made with")
    lock = parse_lock(text, f"{LOCK} of the bundle")
    _check_space(folder, bundle)
    waiting = dict(bundle.blobs)
    for member in found:
        match = BLOB.fullmatch(member.name)
        sha = match["sha256"] if match else ""
        if sha not in waiting or member.size != waiting[sha]:
            raise IntegrityError(f"the bundle holds {member.name!r}, which its manifest does not")
        del waiting[sha]
        _write_blob(member, folder / sha, sha)
    if waiting:
        raise IntegrityError(f"the bundle lacks {len(waiting)} of the files that it names")
    return bundle, lock


def _small(found: Iterator[tar.Member], name: str, most: int) -> bytes:
    member = next(found, None)
    if member is None or member.name != name:
        held = "nothing" if member is None else repr(member.name)
        raise IntegrityError(f"this is no bundle of kernels: {held} is where {name} has to be")
    if member.size > most:
        raise IntegrityError(f"{name} in the bundle has {member.size} bytes; at most {most} may be")
    return b"".join(member.pieces())


def _check_space(folder: Path, bundle: Bundle) -> None:
    linked = sum(bundle.blobs[sha] for k in bundle.kernels for sha in k.files.values())
    needed = sum(bundle.blobs.values()) + linked
    free = free_bytes(folder)
    if free is not None and needed > free:
        raise StoreError(
            f"the bundle needs {needed} bytes to unpack, and the disk of {folder} has {free} free",
            hint="free some space; KERNELHUB_CACHE puts copies of kernels on another disk",
        )


def _write_blob(member: tar.Member, path: Path, sha: str) -> None:
    hasher = hashlib.sha256()
    with translated(path, member.size), path.open("xb") as target:
        for piece in member.pieces():
            hasher.update(piece)
            target.write(piece)
    if hasher.hexdigest() != sha:
        raise IntegrityError(f"{member.name} in the bundle holds other bytes")


def _install_all(
    bundle: Bundle, lock: Lock, blobs: Path, store: Store, own: Lock | None, *, pinned: bool
) -> tuple[Unbundled, ...]:
    held = {(k.repo_id, k.commit): k for k in lock.kernels}
    staged: list[tuple[Repository, BundledKernel, LockedKernel, Path]] = []
    for kernel in bundle.kernels:
        locked = held.get((kernel.repo_id, kernel.commit))
        if locked is None:
            raise IntegrityError(
                f"{kernel.repo_id}@{kernel.commit[:12]} is not in the bundle's lock"
            )
        if own is not None:
            _hold_to_own(locked, own)
        folder = blobs / f"kernel-{len(staged)}"
        _stage(kernel, locked, blobs, folder)
        repository = store.repository(kernel.repo_id)
        listing = Repository(folder, kernel.repo_id).note(kernel.commit, LISTING)
        origins.hold_to_known(repository, kernel.commit, listing, pinned=pinned)
        staged.append((repository, kernel, locked, folder))
    return tuple(
        variant
        for repository, kernel, locked, folder in staged
        for variant in _install(repository, kernel, locked, folder, pinned=pinned)
    )


def _hold_to_own(locked: LockedKernel, own: Lock) -> None:
    mine = next((k for k in own.of(locked.repo_id) if k.commit == locked.commit), None)
    if mine is None or mine.variants != locked.variants:
        raise IntegrityError(
            f"{locked.repo_id}@{locked.commit[:12]} of the bundle is not what the project's lock"
            " pins",
            hint="bundle it anew from the same lock, or unbundle with --no-lock",
        )


def _stage(kernel: BundledKernel, locked: LockedKernel, blobs: Path, folder: Path) -> None:
    """The kernel as a store of its own, verified as a load would verify it."""
    repository = Repository(folder, kernel.repo_id)
    listing = (blobs / kernel.listing).read_bytes()
    if parse_listing(listing) is None:
        message = f"the list of files of {kernel.repo_id} in the bundle is malformed"
        raise IntegrityError(message)
    repository.keep_note(kernel.commit, LISTING, listing)
    for path, sha in kernel.files.items():
        _place(repository, kernel, path, blobs / sha)
    by_lock = HubPlace(repository, kernel.commit, _NO_WAY, locked.variants)
    by_list = HubPlace(repository, kernel.commit, _NO_WAY)
    try:
        for variant in kernel.variants:
            for place in (by_lock, by_list):
                place.verified(repository.folder / kernel.commit / "build" / variant, variant)
            hold_to_version(locked, by_lock.metadata(variant))
    except (IntegrityError, FormatError, LockError) as error:
        raise IntegrityError(
            f"{kernel.repo_id} in the bundle is not what it claims to be: {error}"
        ) from error


def _place(repository: Repository, kernel: BundledKernel, path: str, blob: Path) -> None:
    variant, _, inside = path.removeprefix(BUILD).partition("/")
    if not path.startswith(BUILD) or not inside:
        raise IntegrityError(f"the bundle names {path!r}, which is no file of a variant")
    if variant not in kernel.variants:
        if inside == METADATA:
            data = blob.read_bytes()
            repository.keep_note(kernel.commit, f"metadata/{variant}.json", data)
        return
    target = repository.folder / kernel.commit / path
    with translated(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        with blob.open("rb") as source, target.open("xb") as copy:
            while piece := source.read(CHUNK):
                copy.write(piece)


def _install(
    repository: Repository,
    kernel: BundledKernel,
    locked: LockedKernel,
    folder: Path,
    *,
    pinned: bool,
) -> Iterator[Unbundled]:
    """Verified variants into the store; one that is there whole and right already is left."""
    staged = Repository(folder, kernel.repo_id)
    names = [LISTING, *(f"metadata/{name}.json" for name in locked.variants)]
    with repository.lock(kernel.commit, _LOCK_SECONDS):
        listing = staged.note(kernel.commit, LISTING)
        if origins.hold_to_known(repository, kernel.commit, listing, pinned=pinned):
            repository.forget(kernel.commit)
        if pinned:
            origins.unmark(repository, kernel.commit)
        elif not origins.is_listed(repository, kernel.commit):
            origins.mark(repository, kernel.commit)
        if not origins.is_listed(repository, kernel.commit):
            repository.forget_note(kernel.commit, LISTING)
        for name in names:
            data = staged.note(kernel.commit, name)
            if data is not None and repository.note(kernel.commit, name) is None:
                repository.keep_note(kernel.commit, name, data)
        place = HubPlace(repository, kernel.commit, _NO_WAY, locked.variants)
        for variant in kernel.variants:
            if not _is_there(repository, place, kernel.commit, variant):
                source = folder / kernel.commit / "build" / variant
                repository.install(source, _receipt(place, kernel, variant))
            ready = place.ready(variant)
            yield Unbundled(kernel=locked, variant=variant, folder=ready.folder)
    if kernel.variants and locked.version is not None:  # which their metadata states too
        remember_version(repository, locked.version, locked.commit)


def _is_there(repository: Repository, place: HubPlace, commit: str, variant: str) -> bool:
    stored = repository.find(commit, variant)
    if stored is None:
        return False
    try:
        place.verified(stored.folder, variant)
    except IntegrityError:
        return False
    return True


def _receipt(place: HubPlace, kernel: BundledKernel, variant: str) -> Receipt:
    files = place.files(variant)
    return Receipt(
        repo_id=kernel.repo_id,
        commit=kernel.commit,
        variant=variant,
        files={path: file.id for path, file in files.items()},
        size=sum(file.size for file in files.values()),
        installed=time.time(),
    )
