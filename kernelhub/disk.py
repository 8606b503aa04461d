"""Writing to the local disk so that readers see all or nothing, and its errors as ours. A leaf."""

from __future__ import annotations

import errno
import glob
import logging
import os
import re
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .errors import StoreError

logger = logging.getLogger(__name__)

DAY = 24 * 3600.0
_SIBLING = re.compile(r"\..+\.\d+-[0-9a-f]{8}", re.DOTALL)
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_FORBIDDEN = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})


@contextmanager
def translated(path: Path, needed: int | None = None) -> Iterator[None]:
    """Turn an `OSError` of the block into a StoreError that names `path` and the bytes `needed`."""
    try:
        yield
    except OSError as error:
        raise store_error(error, path, needed) from error


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn an `OSError` of the block into a StoreError: `path` cannot be read."""
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"{path} cannot be read: {error.strerror or error}",
            hint="make it readable for this user"
            if error.errno in _FORBIDDEN
            else "check that file and its disk",
        ) from error


def store_error(error: OSError, path: Path, needed: int | None = None) -> StoreError:
    """The StoreError that tells what `error` means for a write of `needed` bytes below `path`."""
    if error.errno in _FULL:
        amount = f"{needed} bytes are needed there" if needed is not None else "more is needed"
        return StoreError(
            f"the disk of {path} is full (or over its quota): {amount}",
            hint="free some space; KERNELHUB_CACHE puts copies of kernels on another disk",
        )
    if error.errno in _FORBIDDEN:
        return StoreError(
            f"{path} cannot be written: {error.strerror}",
            hint="make it writable for this user; KERNELHUB_CACHE puts copies of kernels elsewhere",
        )
    return StoreError(
        f"{path}: {error.strerror or error}",
        hint="check that disk; KERNELHUB_CACHE puts copies of kernels on another",
    )


def sibling(path: Path) -> Path:
    """A name beside `path` that nobody else uses, for `os.replace` onto it.

    What writers of the same file left that died a day ago or more is removed.
    """
    for left in stale(path.parent, f".{glob.escape(path.name)}.*"):
        remove(left)
    return path.with_name(f".{path.name}.{os.getpid()}-{uuid.uuid4().hex[:8]}")


def stale(folder: Path, pattern: str) -> Iterator[Path]:
    """What has a name that `sibling` gave, below a folder, and was not touched for a day."""
    with suppress(OSError):  # somebody else is cleaning, or it may not be read
        for path in folder.glob(pattern):
            if _SIBLING.fullmatch(path.name) and time.time() - touched(path) > DAY:
                yield path


def touched(path: Path) -> float:
    """When a file, or anything in a folder, was written last. Raises OSError if it is gone."""
    newest = path.lstat().st_mtime
    for inner in path.rglob("*") if path.is_dir() and not path.is_symlink() else ():
        with suppress(OSError):
            newest = max(newest, inner.lstat().st_mtime)
    return newest


def remove(path: Path) -> None:
    """Remove a file or a folder that nobody should see any more; what cannot be, is left."""
    if path.is_dir() and not path.is_symlink():
        discard(path)
    else:
        with suppress(OSError):
            path.unlink()


def write_whole(path: Path, data: bytes) -> None:
    """Write `path` so that a reader sees the old bytes or the new ones, also after a power cut.

    Raises:
        OSError: as the system says; the previous file is then untouched.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = sibling(path)
    try:
        with temporary.open("xb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def alone_with(path: Path, wait: float = 10.0) -> Iterator[None]:
    """Keep other processes from changing `path` while the block reads, changes and writes it.

    Where the file system has no locks the block runs without.

    Raises:
        StoreError: another process has kept it for more than `wait` seconds, or the folder of
            `path` cannot be written.
    """
    import filelock  # what is on this disk is loaded without a lock

    lock = filelock.FileLock(path.with_name(f".{path.name}.lock"), timeout=wait)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except NotImplementedError as error:
        logger.debug("no lock beside %s: %s", path, error)
    except filelock.Timeout as error:
        raise StoreError(
            f"{path} is being changed by another process, for more than {wait:g} s",
            hint=f"end that process, or remove {lock.lock_file} if there is none",
        ) from error
    except OSError as error:
        raise store_error(error, path) from error
    try:
        yield
    finally:
        lock.release()


def sync_folder(path: Path) -> None:
    """Make the names in `path` durable, where the system lets a folder be synchronised."""
    with suppress(OSError):  # Windows and some network file systems cannot; the data itself is safe
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def discard(path: Path) -> None:
    """Remove a folder that nobody should see any more; what cannot be removed now is left."""
    shutil.rmtree(path, ignore_errors=True)


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A folder that is gone after the block, on a disk that can be written even if no cache can.

    Raises:
        StoreError: there is no such disk.
    """
    try:
        folder = Path(tempfile.mkdtemp(prefix="kernelhub-"))
    except OSError as error:
        raise StoreError(
            f"no temporary folder can be made: {error.strerror or error}",
            hint="set TMPDIR to a folder that can be written",
        ) from error
    try:
        yield folder
    finally:
        discard(folder)


def is_there(path: Path) -> bool:
    """Whether there is such a file or folder, as far as this user may see: never an `OSError`."""
    try:
        path.stat()
    except OSError:
        return False
    return True


def is_file(path: Path) -> bool:
    """Whether there is such a file, where no answer is not a no.

    Raises:
        StoreError: this user may not look.
    """
    with reading(path):
        return path.is_file()


def free_bytes(path: Path) -> int | None:
    """Bytes that may still be written below `path`, None where that cannot be told."""
    existing = next((p for p in (path, *path.parents) if is_there(p)), None)
    if existing is None:
        return None
    try:
        return shutil.disk_usage(existing).free
    except OSError:
        return None
