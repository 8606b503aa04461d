"""What a branch should hold: a build or the card, with the ids that a Hub knows files by."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kernelhub.errors import InputError
from kernelhub.signature_file import FILE

from .card import CARD, make_card, render_card
from .pack import METADATA, OUTPUT, Built
from .project import Project
from .publish_plan import MAIN, LocalFile

_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What one branch should hold: repository path to bytes on disk or in memory."""

    branch: str
    sources: Mapping[str, Path | bytes]
    files: tuple[LocalFile, ...]


def build_content(branch: str, built: Built) -> Content:
    """The build as a version branch holds it."""
    sources: dict[str, Path | bytes] = {}
    for variant in built.variants:
        folder = built.folder / variant.name
        signature = (FILE,) if (folder / FILE).is_file() else ()
        for name in (*(file.path for file in variant.files), METADATA, *signature):
            sources[f"{OUTPUT}/{variant.name}/{name}"] = folder / name
    return _content(branch, sources)


def card_content(project: Project, repo_id: str) -> Content:
    """The card as main holds it."""
    card = render_card(make_card(project, repo_id))
    return _content(MAIN, {CARD: card})


def _content(branch: str, sources: Mapping[str, Path | bytes]) -> Content:
    files = tuple(_local_file(path, source) for path, source in sorted(sources.items()))
    return Content(branch=branch, sources=sources, files=files)


def _local_file(path: str, source: Path | bytes) -> LocalFile:
    """Hash a file as git and as LFS do, in one pass."""
    size = len(source) if isinstance(source, bytes) else source.stat().st_size
    git = hashlib.sha1(f"blob {size}\0".encode(), usedforsecurity=False)
    lfs = hashlib.sha256()
    for chunk in _chunks(source):
        git.update(chunk)
        lfs.update(chunk)
    return LocalFile(path=path, size=size, git_sha1=git.hexdigest(), sha256=lfs.hexdigest())


def _chunks(source: Path | bytes) -> Iterator[bytes]:
    if isinstance(source, bytes):
        yield source
        return
    try:
        with source.open("rb") as stream:
            while chunk := stream.read(_CHUNK):
                yield chunk
    except OSError as error:
        raise InputError(f"cannot read {source}: {error.strerror}") from error
