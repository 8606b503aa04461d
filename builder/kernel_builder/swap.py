"""Replace a folder whole: whoever is interrupted leaves the old one or the new one.

Where the system can exchange two names in one step (Linux, macOS) there is no instant without the
folder. Elsewhere the old one is moved aside first, and `recover` moves it back if the process ended
between the two steps.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
from pathlib import Path

_AT_FDCWD = {"linux": -100, "darwin": -2}
_EXCHANGE = 2  # RENAME_EXCHANGE of renameat2(2) and RENAME_SWAP of renameatx_np(2) alike
_FUNCTION = {"linux": "renameat2", "darwin": "renameatx_np"}
_ASIDE = "previous"


def replace_folder(new: Path, target: Path, work: Path) -> None:
    """Put `new` in the place of `target`; what was there is removed.

    Args:
        new: the complete folder, on the same file system.
        target: its place, with or without a folder now.
        work: a private folder beside `target` for what is moved aside.

    Raises:
        OSError: the file system refuses; `target` then holds what it held.
    """
    if not target.exists():
        new.rename(target)
        return
    if exchange(new, target):
        shutil.rmtree(new)
        return
    aside = work / _ASIDE
    shutil.rmtree(aside, ignore_errors=True)
    target.rename(aside)
    try:
        new.rename(target)
    except BaseException:
        aside.rename(target)
        raise
    shutil.rmtree(aside)


def recover(target: Path, work: Path) -> None:
    """Undo a replacement that ended between its two steps. Does nothing otherwise."""
    aside = work / _ASIDE
    if aside.is_dir() and not target.exists():
        aside.rename(target)


def exchange(one: Path, other: Path) -> bool:
    """Exchange two names in one step. False where the system or file system has no such call."""
    name = _FUNCTION.get(sys.platform)
    if name is None:
        return False
    function = getattr(ctypes.CDLL(None, use_errno=True), name, None)
    if function is None:
        return False
    here = _AT_FDCWD[sys.platform]
    arguments = (here, os.fsencode(one), here, os.fsencode(other), ctypes.c_uint(_EXCHANGE))
    return bool(function(*arguments) == 0)
