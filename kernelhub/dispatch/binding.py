"""Gives the tunables of a loaded package their trees, before the package is handed out."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from kernelhub.errors import FormatError, IntegrityError, Problem
from kernelhub.formats.tree import Tree, parse
from kernelhub.settings import current
from kernelhub.target import Target

from . import record
from .adapter import Tunable
from .dispatcher import BoundTree, bound_tree
from .finding import find_tunables

logger = logging.getLogger(__name__)

FOLDER = "tuning"


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeFile:
    """The bytes of a tree that was found, not yet read as a tree."""

    path: str
    overlay: bool
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """What `bind` found.

    Attributes:
        package: the module's name.
        tunables: all of its tunables, by dotted name below the package.
        files: for each tunable that has any, its tree files, overlays first.
    """

    package: str
    tunables: Mapping[str, Tunable]
    files: Mapping[str, Sequence[TreeFile]]


def bind(
    package: ModuleType,
    folder: Path,
    *,
    read: Callable[[str], bytes],
    target: Target,
    overlays: Path,
) -> Binding:
    """Let the package's trees answer for its kernels from now on.

    A tree that cannot be used is passed over with one warning; with `settings.strict` it raises.
    Trees are read here and parsed when the first call needs them. Recording starts here too where
    the environment asks for it.

    Args:
        package: the imported package.
        folder: its folder; trees lie in `tuning/` below it.
        read: gives the verified bytes of a file by its `/`-separated name relative to `folder`.
        target: this machine; its device counts where the framework cannot tell one.
        overlays: folder of the user's trees for this repository (`overlay.folder_of`).

    Raises:
        FormatError, IntegrityError: only when strict.
    """
    record.start_from_settings()
    tunables = find_tunables(package, target.device)
    strict = current().strict
    found = [*_overlay_files(overlays), *_bundled_files(folder, read)]
    files: dict[str, list[TreeFile]] = {}
    for file in found:
        kernel = Path(file.path).stem.rpartition(".")[0]
        if kernel in tunables:
            files.setdefault(kernel, []).append(file)
        else:
            _foreign(file, package.__name__, strict=strict)
    for name, those in files.items():
        load = functools.partial(load_trees, name, those, strict=strict)
        if strict:
            load()
        tunables[name].give(load)
    return Binding(package=package.__name__, tunables=tunables, files=files)


def load_trees(kernel: str, files: Sequence[TreeFile], *, strict: bool) -> list[BoundTree]:
    """Parse tree files; a damaged one is passed over with a warning, or raises when strict."""
    trees: list[BoundTree] = []
    for file in files:
        try:
            tree = _parse(kernel, file)
        except FormatError as error:
            if strict:
                raise
            logger.warning("tree not used: %s", error)
            continue
        trees.append(bound_tree(tree, file.path, overlay=file.overlay))
    return trees


def _parse(kernel: str, file: TreeFile) -> Tree:
    try:
        text = file.data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = file.data.count(b"\n", 0, error.start) + 1
        problem = Problem(message="not UTF-8", path=file.path, line=line)
        raise FormatError(file.path, [problem]) from error
    tree = parse(text, file.path)
    if tree.kernel != kernel:
        problem = Problem(message=f"is for {tree.kernel}, not {kernel}", path=file.path)
        raise FormatError(file.path, [problem])
    return tree


def _bundled_files(folder: Path, read: Callable[[str], bytes]) -> Iterator[TreeFile]:
    try:
        names = sorted(path.name for path in (folder / FOLDER).iterdir() if _is_tree(path))
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in names:
        yield from _read(f"{FOLDER}/{name}", overlay=False, read=read)


def _is_tree(path: Path) -> bool:
    """Whether it is called like one, `<kernel>.<device>.py`."""
    return path.suffix == ".py" and "." in path.stem


def _foreign(file: TreeFile, package: str, *, strict: bool) -> None:
    message = f"is for a kernel that {package} does not have"
    if strict:
        raise FormatError(file.path, [Problem(message=message, path=file.path)])
    logger.warning("tree not used: %s %s", file.path, message)


def _read_path(path: str) -> bytes:
    return Path(path).read_bytes()


def _read(path: str, *, overlay: bool, read: Callable[[str], bytes]) -> Iterator[TreeFile]:
    try:
        yield TreeFile(path=path, overlay=overlay, data=read(path))
    except (IntegrityError, OSError) as error:
        if current().strict:
            raise
        logger.warning("tree not used: %s: %s", path, error)


def _overlay_files(folder: Path) -> Iterator[TreeFile]:
    try:
        paths = sorted(path for path in folder.iterdir() if _is_tree(path))
    except (FileNotFoundError, NotADirectoryError):
        return
    for path in paths:
        yield from _read(str(path), overlay=True, read=_read_path)
