"""One kernel's Python package: its name, made of its content, and its verified bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .errors import IntegrityError, LoadError
from .formats.digest import is_hashed
from .hashing import matches
from .verify import Manifest

PREFIX = "_kernelhub_"
INIT = "__init__.py"
_AGAIN = "load it again in a new process: a damaged copy is downloaded again"


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """One kernel that is, or is about to be, imported.

    Attributes:
        name: what it is called in `sys.modules`.
        title: what people call it, for texts ("org/k@v1 torch-cuda").
        folder: folder of the package itself.
        inside: that folder's path in the variant: "" or "<py>/".
        variant: folder of the variant, which the manifest's paths are relative to.
        manifest: what each of its files must be.
        requirements: distribution names to the requirement that the kernel declares for them.
    """

    name: str
    title: str
    folder: Path
    inside: str
    variant: Path
    manifest: Manifest
    requirements: Mapping[str, str]

    def read(self, path: str) -> bytes:
        """The verified bytes of a file, by its path in the package.

        Raises:
            IntegrityError: there is no such file in what was published, or its bytes differ.
        """
        expected = self.manifest.get(self.inside + path)
        place = self.folder / path
        if expected is None:
            raise IntegrityError(
                f"{self.title}: {place} is not part of what was published",
                hint="its author has to publish it again, with that file",
            )
        try:
            data = place.read_bytes()
        except OSError as error:
            raise IntegrityError(
                f"{self.title}: {place} cannot be read: {error.strerror or error}", hint=_AGAIN
            ) from error
        if not matches(data, expected):
            raise IntegrityError(
                f"{self.title}: {place} changed after it was verified",
                faults={self.inside + path: f"is not {expected.algorithm} {expected.value}"},
                hint=_AGAIN,
            )
        return data

    def has(self, path: str) -> bool:
        """Whether a file of this path in the package was published."""
        return self.inside + path in self.manifest

    def has_any(self, start: str) -> bool:
        """Whether anything whose path in the package starts so was published."""
        return any(name.startswith(self.inside + start) for name in self.manifest)

    def has_folder(self, path: str) -> bool:
        """Whether a Python file below this folder of the package was published."""
        start = f"{self.inside}{path}/"
        return any(name.startswith(start) and name.endswith(".py") for name in self.manifest)


def describe(
    folder: Path,
    manifest: Manifest,
    python_name: str,
    *,
    title: str,
    requirements: Mapping[str, str],
) -> Package:
    """The package of a verified variant: its `__init__.py`, or that of its folder `<py>`.

    Raises:
        LoadError: it has neither.
    """
    inside = next((p for p in ("", f"{python_name}/") if p + INIT in manifest), None)
    if inside is None:
        raise LoadError(
            f"{title}: neither __init__.py nor {python_name}/__init__.py was published",
            hint="the kernel's author has to build it again",
        )
    hashed = {path: file_id for path, file_id in manifest.items() if is_hashed(path)}
    return Package(
        name=f"{PREFIX}{python_name}_{content_key(hashed)}",
        title=title,
        folder=folder / inside.rstrip("/"),
        inside=inside,
        variant=folder,
        manifest=hashed,
        requirements=requirements,
    )


def content_key(manifest: Manifest) -> str:
    """16 hex digits for the content of a variant."""
    hasher = hashlib.sha256()
    for path, file_id in sorted(manifest.items()):
        hasher.update(f"{path}\0{file_id.algorithm}\0{file_id.value}\n".encode())
    return hasher.hexdigest()[:16]
