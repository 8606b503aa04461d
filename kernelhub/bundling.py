"""Locked kernels into a bundle: one file, the same bytes for the same kernels."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from . import tar
from .disk import reading, sibling, translated
from .errors import InputError, StoreError
from .formats.bundle import (
    MANIFEST,
    MOST_FILE_BYTES,
    Bundle,
    BundledKernel,
    render_bundle,
)
from .formats.content import METADATA
from .formats.lock import NAME as LOCK
from .formats.lock import Lock
from .formats.lock_text import render_lock
from .hashing import CHUNK, hash_file
from .hub_place import HubPlace
from .listings import BUILD
from .resolution import Way
from .store import Store
from .syncing import Synced


def write_bundle(
    path: Path, lock: Lock, synced: Sequence[Synced], store: Store, way: Way
) -> tuple[int, int]:
    """Write variants that are on this disk, verified, into one file.

    Args:
        path: the file; it appears whole or not at all.
        lock: the lock that the variants belong to.
        synced: what `syncing.sync` brought here.

    Returns:
        How many variants it holds, and its size in bytes.

    Raises:
        InputError: there is nothing to bundle.
        StoreError: the disk failed, or a file is larger than a bundle can hold.
    """
    variants = [item for item in synced if item.variant is not None]
    if not variants:
        raise InputError("there is nothing to bundle")
    text = render_lock(lock).encode()
    blobs: dict[str, Path | bytes] = {}
    kernels = tuple(_kernels(variants, store, way, blobs))
    sizes = {sha: _size(source) for sha, source in blobs.items()}
    manifest = render_bundle(
        Bundle(lock=hashlib.sha256(text).hexdigest(), kernels=kernels, blobs=sizes)
    )
    temporary = sibling(path)
    with translated(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("xb") as stream:
                _member(stream, MANIFEST, manifest)
                _member(stream, LOCK, text)
                for sha in sorted(blobs):
                    _member(stream, f"blobs/sha256/{sha}", blobs[sha])
                stream.write(tar.END)
                stream.flush()
                os.fsync(stream.fileno())
            size = temporary.stat().st_size
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    return len(variants), size


def _kernels(
    variants: Sequence[Synced], store: Store, way: Way, blobs: dict[str, Path | bytes]
) -> Iterator[BundledKernel]:
    grouped: dict[tuple[str, str], list[Synced]] = {}
    for item in variants:
        grouped.setdefault((item.kernel.repo_id, item.kernel.commit), []).append(item)
    for (repo_id, commit), items in grouped.items():
        kernel = items[0].kernel
        repository = store.repository(repo_id)
        place = HubPlace(repository, commit, way, kernel.variants)
        files: dict[str, str] = {}
        for name in kernel.variants:  # each one's metadata, since a choice among them reads all
            data = place.metadata_bytes(name)
            files[f"{BUILD}{name}/{METADATA}"] = _blob(data, blobs)
        for item in items:
            folder = repository.folder / commit / "build" / (item.variant or "")
            for path in place.files(item.variant or ""):
                files[f"{BUILD}{item.variant}/{path}"] = _blob(folder / path, blobs)
        yield BundledKernel(
            repo_id=repo_id,
            commit=commit,
            variants=tuple(item.variant or "" for item in items),
            listing=_blob(place.listing_bytes(), blobs),
            files=files,
        )


def _blob(source: Path | bytes, blobs: dict[str, Path | bytes]) -> str:
    if isinstance(source, bytes):
        sha = hashlib.sha256(source).hexdigest()
    else:
        with reading(source):
            sha = hash_file(source, "sha256")
    blobs.setdefault(sha, source)
    return sha


def _size(source: Path | bytes) -> int:
    size = len(source) if isinstance(source, bytes) else source.stat().st_size
    if size > MOST_FILE_BYTES:
        raise StoreError(f"{source!s} has {size} bytes, more than a bundle can hold in one file")
    return size


def _member(stream: IO[bytes], name: str, source: Path | bytes) -> None:
    size = len(source) if isinstance(source, bytes) else source.stat().st_size
    stream.write(tar.header(name, size))
    if isinstance(source, bytes):
        stream.write(source)
    else:
        with source.open("rb") as content:
            while piece := content.read(CHUNK):
                stream.write(piece)
    stream.write(tar.padding(size))
