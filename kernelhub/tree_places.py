"""Where the trees of a kernel lie on this machine: in a folder, or in the store. No network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .dispatch import overlay
from .dispatch.binding import FOLDER, TreeFile
from .errors import NotCached, NotFoundError, RequirementError
from .formats.metadata import parse_metadata
from .formats.requirement import Requirement, parse_requirement
from .listings import parse_listing
from .settings import current
from .store import LISTING, Repository, Store, Stored
from .verify import METADATA


@dataclass(frozen=True, slots=True, kw_only=True)
class TreePlaces:
    """Trees of a kernel.

    Attributes:
        files: by dotted name of the tunable; the user's own first, each tree once.
        here: variants whose trees these are; empty for a kernel's source.
        elsewhere: variants that are published at the same commit and are not on this machine.
    """

    files: dict[str, list[TreeFile]]
    here: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()


def tree_places(where: str, variant: str | None = None) -> TreePlaces:
    """Find them.

    Args:
        where: a folder, or a requirement ("org/name", "org/name==1", "org/name@<commit>") on what
            this machine has loaded; of several such commits the one that was loaded last.
        variant: only this one's.

    Raises:
        NotFoundError: it is neither, or there is no such variant.
        NotCached: nothing of it, or not that variant, is on this machine.
    """
    folder, repo_id = Path(where), None
    variants: dict[str, list[Path]] = {}
    elsewhere: tuple[str, ...] = ()
    if not folder.exists():
        wanted = _requirement(where)
        repo_id, local = wanted.repo_id, current().local_kernels.get(wanted.repo_id)
        if local is None:
            stored, elsewhere = _stored(wanted)
            variants = {found.receipt.variant: [found.folder] for found in stored}
        else:
            folder = local
    variants = variants or _below(folder)
    if variant is not None:
        if variant not in variants:
            raise _no_variant(where, variant, sorted(filter(None, variants)), elsewhere)
        variants = {variant: variants[variant]}
    packages = sorted(
        found.parent
        for roots in variants.values()
        for root in roots
        for found in root.rglob(FOLDER)
        if found.is_dir()
    )
    here = tuple(sorted(filter(None, variants)))
    return TreePlaces(files=_files(packages, repo_id), here=here, elsewhere=elsewhere)


def _requirement(where: str) -> Requirement:
    try:
        return parse_requirement(where)
    except RequirementError as error:
        raise NotFoundError(
            f"{where} is neither a folder nor a kernel's name", hint=error.message
        ) from error


def _below(folder: Path) -> dict[str, list[Path]]:
    """Variants below a folder, or which it is; under "" what is no build."""
    built = [path.parent for path in sorted(folder.rglob(METADATA))]
    if not built:
        return {"": [folder]}
    variants: dict[str, list[Path]] = {}
    for root in built:
        variants.setdefault(root.name or root.resolve().name, []).append(root)
    return variants


def _stored(wanted: Requirement) -> tuple[list[Stored], tuple[str, ...]]:
    """The variants of one commit on this disk, and those of it that are not."""
    now = current()
    repository = Store(now.cache, now.endpoint).repository(wanted.repo_id)
    stored = [
        found
        for commit in repository.commits()
        if _is_revision(wanted, commit)
        for variant in repository.variants(commit)
        if (found := repository.find(commit, variant)) is not None and _admits(wanted, found)
    ]
    if not stored:
        raise NotCached(
            f"{wanted} is not on this machine",
            hint="load it once with get_kernel, or name a folder",
        )
    newest = max(stored, key=lambda found: found.receipt.installed).receipt.commit
    chosen = [found for found in stored if found.receipt.commit == newest]
    missing = _published(repository, newest) - {found.receipt.variant for found in chosen}
    return chosen, tuple(sorted(missing))


def _is_revision(wanted: Requirement, commit: str) -> bool:
    return wanted.revision is None or commit.startswith(wanted.revision)


def _admits(wanted: Requirement, found: Stored) -> bool:
    if wanted.specifier is None:
        return True
    path = found.folder / METADATA
    if not path.is_file():
        return False
    version = parse_metadata(path.read_bytes(), str(path)).version
    return version is not None and wanted.admits(version)


def _published(repository: Repository, commit: str) -> set[str]:
    files = parse_listing(repository.note(commit, LISTING)) or ()
    parts = (file.path.split("/") for file in files)
    return {p[1] for p in parts if len(p) == 3 and (p[0], p[2]) == ("build", METADATA)}


def _no_variant(
    where: str, variant: str, here: Sequence[str], elsewhere: Sequence[str]
) -> NotFoundError:
    known = f"here: {', '.join(here) or 'none'}"
    if elsewhere:
        known += f"; published and not on this machine: {', '.join(elsewhere)}"
    if variant in elsewhere:
        return NotCached(
            f"variant {variant} of {where} is not on this machine",
            hint=f"{known}; a machine that {variant} is for loads it with get_kernel",
        )
    return NotFoundError(f"{where} has no variant {variant}", hint=known)


def _files(packages: Sequence[Path], repo_id: str | None) -> dict[str, list[TreeFile]]:
    mine = [] if repo_id is None else [overlay.folder_of(current().overlays, repo_id)]
    files: dict[str, list[TreeFile]] = {}
    for folder, is_mine in [(f, True) for f in mine] + [(f / FOLDER, False) for f in packages]:
        for path in sorted(folder.glob("*.*.py")):
            name = path.stem.rpartition(".")[0]
            file = TreeFile(path=str(path), overlay=is_mine, data=path.read_bytes())
            known = {other.data for other in files.setdefault(name, [])}
            if file.data not in known:  # the same tree in several variants
                files[name].append(file)
    return files
