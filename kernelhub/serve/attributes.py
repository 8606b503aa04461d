"""The lines of `.gitattributes` that make git-lfs fetch large files in a clone."""

from __future__ import annotations

import re
from collections.abc import Iterable

NAME = ".gitattributes"
_LFS = " filter=lfs diff=lfs merge=lfs -text"


def with_lfs_lines(text: bytes, *, large: Iterable[str], small: Iterable[str]) -> bytes:
    """Add a line for each large path that has none, and drop the lines of small or removed ones.

    Other lines stay as they are.
    """
    gone = {_line(path) for path in small}
    wanted = [_line(path) for path in sorted(large)]
    lines = [line for line in text.splitlines() if line not in gone]
    lines += [line for line in wanted if line not in set(lines)]
    return b"".join(line + b"\n" for line in lines)


def _line(path: str) -> bytes:
    # gitattributes(5): a pattern ends at white space, and globs; a leading slash anchors it.
    pattern = re.sub(r"([*?\[\]!#])", r"\\\1", path).replace(" ", "[[:space:]]")
    return f"/{pattern}{_LFS}".encode()
