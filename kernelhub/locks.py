"""Lock files on this disk: the project's, and those that installed packages ship.

A lock says which bytes may stand for a requirement, and being in one is consent to run them. So a
lock that was only found, in a folder above the working directory, counts as consent only if it
belongs to this user or to the system's administrator, and nobody else may write it: anybody may put
a file into /tmp.

An installed package ships a lock by an entry point of the group `kernelhub.lock` whose value is the
package that holds `kernelhub.lock` beside its `__init__.py`:

    [project.entry-points."kernelhub.lock"]
    my-models = "my_models"
"""

from __future__ import annotations

import importlib.metadata
import logging
import os
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from .disk import is_file, is_there, reading, translated, write_whole
from .errors import InputError, LockError
from .formats.lock import NAME, Lock, LockedKernel, parse_lock
from .formats.metadata import Metadata
from .formats.requirement import Requirement
from .settings import Settings

logger = logging.getLogger(__name__)

GROUP = "kernelhub.lock"


@dataclass(frozen=True, slots=True, kw_only=True)
class LockFile:
    """A lock and where it stands. `consents` tells whether being in it is consent."""

    path: Path
    lock: Lock
    consents: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Locked:
    """A kernel as a lock pins it, and the lock."""

    kernel: LockedKernel
    file: LockFile


def read_lock(path: Path) -> Lock:
    """Read a lock file.

    Raises:
        FormatError: every fault of it.
        InputError: there is no such file.
        StoreError: it cannot be read.
    """
    with reading(path):
        if not path.is_file():
            raise InputError(f"{path} does not exist", hint="`kernelhub lock` writes it")
        return parse_lock(path.read_bytes(), str(path))


def write_lock(path: Path, lock: Lock) -> bool:
    """Write a lock, keeping the comments of the one that is there; False if nothing changed.

    Raises:
        FormatError: it would be larger than a lock may be.
        StoreError: the disk failed; the file is then as it was.
    """
    from .formats.lock_text import render_lock  # a load writes none

    with translated(path):
        before = path.read_bytes().decode("utf-8", "replace") if path.is_file() else None
        text = render_lock(lock, before)
        if text == before:
            return False
        parse_lock(text, str(path))  # what is written can be read, or nothing is
        write_whole(path, text.encode())
    return True


def project_lock(now: Settings) -> LockFile | None:
    """The lock of the project: the setting, else the nearest one from the working directory upward.

    Raises:
        FormatError: it is damaged; a lock is never passed over for its faults.
        InputError: the one that the setting names is not there.
    """
    if not now.use_lock:
        return None
    if now.lock is not None:
        return LockFile(path=now.lock, lock=_cached(now.lock))
    if now.project is not None:
        path = now.project / NAME
        return LockFile(path=path, lock=_cached(path)) if is_file(path) else None
    try:
        start = Path.cwd()
    except OSError:  # the working directory was removed
        return None
    for folder in (start, *start.parents):
        path = folder / NAME
        if is_there(path) and path.is_file():
            return LockFile(path=path, lock=_cached(path), consents=_is_own(path))
    return None


def find_locked(requirement: Requirement, now: Settings, caller: str | None) -> Locked | None:
    """What a lock pins a requirement to: the project's, else that of the package that asks.

    Args:
        caller: top-level package of the code that asks; None if that is not known.

    Returns:
        None where no lock names the repository.

    Raises:
        LockError: the project's lock names the repository, and nothing in it will do.
        FormatError: a lock is damaged.
    """
    if not now.use_lock:
        return None
    for file in _files(now, caller):
        kernel = file.lock.find(requirement)
        if kernel is not None:
            return Locked(kernel=kernel, file=file)
        if requirement.is_pinned:
            continue  # a full commit cannot mean anything else; it has no consent from the lock
        if held := file.lock.of(requirement.repo_id):
            raise _contradiction(requirement, held, file)
    return None


def hold_to_version(kernel: LockedKernel, metadata: Metadata) -> None:
    """A version in a lock is a claim, which anybody who edits the file can make.

    Raises:
        LockError: the kernel's verified metadata states another version.
    """
    if kernel.version in (None, metadata.version):
        return
    raise LockError(
        f"the lock holds {kernel.repo_id} ({kernel.commit[:12]}) as version {kernel.version}, and"
        f" its metadata states version {metadata.version}",
        hint=f"run `kernelhub lock --upgrade {kernel.repo_id}` and review the change",
    )


def _files(now: Settings, caller: str | None) -> Iterator[LockFile]:
    if (project := project_lock(now)) is not None:
        yield project
    if caller is not None and (path := _shipped(caller)) is not None:
        yield LockFile(path=path, lock=_cached(path))


def _contradiction(
    requirement: Requirement, held: tuple[LockedKernel, ...], file: LockFile
) -> LockError:
    listed = ", ".join(
        f"version {k.version}" if k.version is not None else f"commit {k.commit[:12]}" for k in held
    )
    return LockError(
        f"{requirement} is asked for, and {file.path} holds {requirement.repo_id} at {listed}",
        hint=f"change the requirement and run `kernelhub lock --upgrade {requirement.repo_id}`,"
        " or ask for what is locked",
    )


_parsed: dict[Path, tuple[tuple[int, int, int, int], Lock]] = {}


def _cached(path: Path) -> Lock:
    """`read_lock`, left out where the file is the one that was read before."""
    try:
        state = path.stat()
    except OSError:
        return read_lock(path)
    facts = (state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino)
    known = _parsed.get(path)
    if known is None or known[0] != facts:
        known = (facts, read_lock(path))
        _parsed[path] = known
    return known[1]


def _is_own(path: Path) -> bool:
    """Whether nobody but this user and the administrator has a say in it. True on Windows."""
    doubt = "" if sys.platform == "win32" else _doubt(path)
    if doubt:
        logger.warning(
            "%s %s: its pins count, but being in it is no consent; name it in KERNELHUB_LOCK if"
            " you trust it",
            path,
            doubt,
        )
    return not doubt


def _doubt(path: Path) -> str:
    """Who else may have written it, or "".

    A group of one's own is nobody else: where each user has one, files are made writable by it
    (umask 002). Of the folder only others count: what they put there belongs to them.
    """
    file, folder = path.stat(), path.parent.stat()
    if file.st_uid not in (os.geteuid(), 0):
        return "belongs to another user"
    if file.st_mode & stat.S_IWOTH:
        return "may be written by any user (chmod o-w)"
    if file.st_mode & stat.S_IWGRP and file.st_gid not in (_own_group(), 0):
        return "may be written by a group that is not your own (chmod g-w)"
    if folder.st_mode & stat.S_IWOTH and not folder.st_mode & stat.S_ISVTX:
        return "is in a folder that any user may write to (chmod o-w)"
    return ""


def _own_group() -> int:
    """The group that the user's account has, whichever `newgrp` has chosen."""
    import pwd  # not on Windows

    try:
        return pwd.getpwuid(os.geteuid()).pw_gid
    except KeyError:  # an id without an account, as in containers
        return os.getegid()


def calling_package() -> str | None:
    """Top-level package of the nearest code that is not of this package; None for a script."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        frame = frame.f_back
        name = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if name != "kernelhub":
            return None if name in ("", "__main__") else name
    return None


def _shipped(package: str) -> Path | None:
    """The lock that an installed, imported package ships; it is announced in its metadata."""
    folders = getattr(sys.modules.get(package), "__path__", ())
    path = next((p for p in (Path(folder, NAME) for folder in folders) if p.is_file()), None)
    if path is None or package not in _announced():
        return None
    return path


@lru_cache(maxsize=1)
def _announced() -> frozenset[str]:
    """Packages of whatever is installed that ship a lock. Reads the metadata of all of it."""
    return frozenset(point.value for point in importlib.metadata.entry_points(group=GROUP))
