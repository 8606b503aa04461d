"""Where the variants of one kernel are: the seam, and a folder on this disk.

`hub_place` is the other one: a commit on a Hub, and the store.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

from .disk import reading
from .errors import IntegrityError
from .formats.metadata import Metadata, parse_metadata
from .sources.folder import find_variants
from .verify import METADATA, Manifest, hash_folder, manifest_of, verify_once

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A variant on this disk whose bytes were verified."""

    folder: Path
    manifest: Manifest


class Place(Protocol):
    """Where the variants of one kernel are."""

    def variants(self) -> tuple[str, ...]:
        """Names of what was published, in any order."""

    def metadata(self, variant: str) -> Metadata:
        """A variant's metadata. Raises FormatError, and NotCached where it cannot be had now."""

    def ready(self, variant: str) -> Ready:
        """The variant on this disk, verified. Raises IntegrityError, NotCached, StoreError, ..."""


class FolderPlace:
    """Variants in a local folder, used where they are."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @cached_property
    def _folders(self) -> Mapping[str, Path]:
        with reading(self._path):
            return find_variants(self._path)

    def variants(self) -> tuple[str, ...]:
        return tuple(self._folders)

    def metadata(self, variant: str) -> Metadata:
        path = self._folders[variant] / METADATA
        with reading(path):
            return parse_metadata(path.read_bytes(), str(path))

    def ready(self, variant: str) -> Ready:
        """The folder itself; where the metadata holds no digest its files are taken as they are."""
        folder = self._folders[variant]
        digest = self.metadata(variant).digest
        if digest is None:
            logger.debug("%s has no digest: its files are taken as they are now", folder)
            with reading(folder):
                return Ready(folder=folder, manifest=manifest_of(hash_folder(folder), str(folder)))
        manifest = manifest_of(digest, str(folder))
        try:
            verify_once(folder, manifest)
        except IntegrityError as error:
            error.hint = "files were changed after the build: run `kernel-builder build` again"
            raise
        return Ready(folder=folder, manifest=manifest)
