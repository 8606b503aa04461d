"""Names that cross the border: kernels, repositories, branches, and files inside a kernel.

Each `*_fault` function returns what is wrong with a name, or None; they are pure and never raise.
"""

from __future__ import annotations

import keyword
import re
import sys

from kernelhub.errors import FormatError, Problem

KERNEL_NAME = re.compile(r"[a-z][-a-z0-9]*[a-z0-9]", re.ASCII)
"""What HF's client and builder accept; use `fullmatch`. Two characters at least."""

REPO_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)

_TAKEN = frozenset({"jax", "jaxlib", "kernelhub", "kernels", "numpy", "torch", "triton"})
_WINDOWS_DEVICES = frozenset(
    {"con", "prn", "aux", "nul", "conin$", "conout$"}
    | {f"{port}{digit}" for port in ("com", "lpt") for digit in "123456789¹²³"}
)
_WINDOWS_FORBIDDEN = frozenset('<>"|?*')
_BRANCH_FORBIDDEN = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|^[/-]|[/.]$|^@$|/\.|^\.")


def name_fault(name: str) -> str | None:
    """Why a kernel may not be called so, or None. Stricter than HF: see `importable_fault`."""
    if not KERNEL_NAME.fullmatch(name):
        return (
            "a kernel name starts with a lower-case letter, holds lower-case letters, digits and "
            "dashes, ends with a letter or digit, and has two characters or more"
        )
    return importable_fault(name.replace("-", "_"))


def importable_fault(python_name: str) -> str | None:
    """Why a package may not be called so, or None.

    A kernel's folder stands on the import path while it is developed and tested, so one that is
    called like a module of the standard library, or like what kernels import, would hide it.
    """
    if not python_name.isidentifier() or keyword.iskeyword(python_name):
        return f"the Python package would be called {python_name!r}, which cannot be imported"
    if python_name in _WINDOWS_DEVICES:
        return f"the folder would be called {python_name!r}, which is a device on Windows"
    if python_name in sys.stdlib_module_names or python_name in _TAKEN:
        return (
            f"the Python package would be called {python_name!r} and hide the module of that name"
        )
    return None


def python_name(name: str) -> str:
    """The name of a kernel's Python package: "flash-attn" -> "flash_attn".

    Raises:
        FormatError: it is no kernel name, or the package could not be imported under it.
    """
    if fault := name_fault(name):
        raise FormatError(f"kernel name {name!r}", [Problem(message=fault, code="name")])
    return name.replace("-", "_")


def path_fault(path: str) -> str | None:
    """Why `path` may not name a file inside a kernel, or None.

    The rules are those of the strictest file system, so that a kernel published from one machine
    can be stored on every other: POSIX separators, no way out of the folder, and nothing that
    Windows reserves or silently renames.
    """
    if not path:
        return "a file name may not be empty"
    if any("\ud800" <= c <= "\udfff" for c in path):
        return "a file name must be UTF-8"
    if any(c < " " or c == "\x7f" for c in path):
        return "a file name may not hold control characters"
    if "\\" in path:
        return "write / between the parts of a file name, not a backslash"
    if path.startswith("/"):
        return "a file name must be relative"
    if ":" in path:
        return "a file name may not hold a colon (drive letters and streams of Windows)"
    for part in path.split("/"):
        if fault := _part_fault(part):
            return fault
    return None


def _part_fault(part: str) -> str | None:
    if part == "":
        return "a file name may not have empty parts"
    if part in (".", ".."):
        return f"a file name may not hold {part!r} as a part"
    if part.endswith((".", " ")):
        return f"{part!r} ends with a dot or a space, which Windows drops"
    if _WINDOWS_FORBIDDEN & set(part):
        return f"{part!r} holds a character that Windows does not allow"
    if part.split(".", 1)[0].rstrip(" ").lower() in _WINDOWS_DEVICES:
        return f"{part!r} is the name of a device on Windows"
    if len(part.encode()) > 255:
        return f"a part of a file name may have 255 bytes, {part[:20]!r}... has more"
    return None


def check_relative(path: str) -> str:
    """Return `path` if it may name a file inside a kernel.

    Raises:
        FormatError: it is absolute, leaves the folder, or cannot be stored on every system.
    """
    if fault := path_fault(path):
        raise FormatError(f"file name {path!r}", [Problem(message=fault, code="path")])
    return path


def repo_id_fault(repo_id: str) -> str | None:
    """Why this is no repository of a Hub ("org/name"), or None. The rules are the Hub's own."""
    if not REPO_ID.fullmatch(repo_id):
        return "a repository is written org/name, with letters, digits, '-', '_' and '.'"
    for part in repo_id.split("/"):
        if part.endswith(("-", ".", ".git")) or "--" in part or ".." in part:
            return f"{part!r} holds '--' or '..', or ends with '-', '.' or '.git'"
        if len(part) > 96:
            return "each half of a repository's name may have 96 characters"
    return None


def revision_fault(revision: str) -> str | None:
    """Why git has no branch, tag or commit of this name, or None."""
    if not revision or _BRANCH_FORBIDDEN.search(revision) or revision.endswith(".lock"):
        return f"{revision!r} is no name of a branch, tag or commit"
    if any("\ud800" <= c <= "\udfff" for c in revision) or len(revision.encode()) > 255:
        return f"{revision[:40]!r} is no name of a branch, tag or commit"
    return None
