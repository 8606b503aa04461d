"""A tree of a git repository with some paths taken out and others put in."""

from __future__ import annotations

import stat
from collections import defaultdict
from collections.abc import Mapping, Set
from typing import Any

from dulwich.objects import Tree

from .refusal import bad_request

FILE_MODE = 0o100644
Parts = tuple[bytes, ...]


def split(path: str) -> Parts:
    """A checked path as git's tree entries name it."""
    return tuple(part.encode() for part in path.split("/"))


def edit(
    objects: Any, base: bytes | None, removed: Set[Parts], added: Mapping[Parts, bytes]
) -> bytes:
    """Store the changed trees and return the id of the root.

    Removals come first, so a folder can be removed and filled anew in one commit. A file keeps its
    mode when its content changes; folders that become empty vanish, as in git.

    Args:
        objects: the dulwich object store.
        base: id of the tree to start from, None for an empty one.
        removed: files and folders to take out; those that are not there are ignored.
        added: path to blob id.

    Raises:
        Refusal: 400, a path is a folder here and a file there.
    """
    tree = objects[base].copy() if base is not None else Tree()
    removed_below: defaultdict[bytes, set[Parts]] = defaultdict(set)
    added_below: defaultdict[bytes, dict[Parts, bytes]] = defaultdict(dict)
    for parts in removed:
        removed_below[parts[0]].add(parts[1:])
    for parts, blob in added.items():
        added_below[parts[0]][parts[1:]] = blob
    for name in sorted({*removed_below, *added_below}):
        _edit_entry(objects, tree, name, removed_below[name], added_below[name])
    objects.add_object(tree)
    return tree.id  # type: ignore[no-any-return]


def _edit_entry(
    objects: Any, tree: Tree, name: bytes, removed: Set[Parts], added: Mapping[Parts, bytes]
) -> None:
    mode, current = tree[name] if name in tree else (None, None)  # noqa: SIM401 - no dict
    if () in removed:
        mode, current = None, None
    is_folder = mode is not None and stat.S_ISDIR(mode)
    if () in added:
        if len(added) > 1 or (is_folder and not removed):
            raise bad_request(f"{name.decode()!r} cannot be both a file and a folder")
        tree[name] = (FILE_MODE if mode is None or is_folder else mode, added[()])
        return
    if added and mode is not None and not is_folder:
        raise bad_request(f"{name.decode()!r} is a file: remove it before putting files below it")
    if is_folder or added:
        below = edit(objects, current if is_folder else None, removed - {()}, added)
        if len(objects[below]):
            tree[name] = (stat.S_IFDIR, below)
            return
        mode = None
    if mode is None and name in tree:
        del tree[name]
