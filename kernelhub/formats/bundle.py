"""A bundle: locked kernels in one tar file, for a machine with no network.

The tar holds plain files only, in this order, with nothing but zeros for owners and times:

    bundle.json             this module's manifest
    kernelhub.lock          what the kernels were bundled from
    blobs/sha256/<hex>      content, each once, sorted by name

Members are named by content, so no name in the tar can lead anywhere; the paths of files are in the
manifest and are checked like every path that is received.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from kernelhub.errors import FormatError, Problem

from .json_text import load_json
from .models import Received, problem, shown, validate
from .scalars import Commit, RelativePath, RepoId, Text, custom_error
from .variant import VariantName

SCHEMA = 1
MANIFEST = "bundle.json"
BLOB = re.compile(r"blobs/sha256/(?P<sha256>[0-9a-f]{64})", re.ASCII)
MOST_MANIFEST_BYTES = 64 << 20
MOST_FILE_BYTES = (8 << 30) - 1  # what a tar header of the plain kind can say
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class BundledKernel:
    """One kernel of a bundle.

    Attributes:
        repo_id: "org/name".
        commit: full commit id.
        variants: names of the variants that the bundle holds whole.
        listing: SHA-256 of the blob that lists the files of the commit.
        files: files of these variants by repository path, and each metadata.json.
    """

    repo_id: str
    commit: str
    variants: tuple[str, ...]
    listing: str
    files: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """A manifest: `blobs` is each blob's size by its SHA-256, `lock` the SHA-256 of the lock."""

    lock: str
    kernels: tuple[BundledKernel, ...]
    blobs: Mapping[str, int]


def _hex(value: str) -> str:
    if not _SHA256.fullmatch(value):
        raise custom_error("expected a SHA-256 in 64 hexadecimal digits")
    return value


Sha256 = Annotated[Text, AfterValidator(_hex)]
Size = Annotated[int, Field(ge=0, le=MOST_FILE_BYTES, strict=True)]


class _Kernel(Received):
    repo_id: RepoId
    commit: Commit
    variants: tuple[RelativePath, ...]
    listing: Sha256
    files: dict[RelativePath, Sha256]


class _Bundle(Received):
    lock: Sha256
    kernels: tuple[_Kernel, ...]
    blobs: dict[Sha256, Size]


def render_bundle(bundle: Bundle) -> bytes:
    """The bytes of a manifest: sorted, the same for the same content."""
    value = {
        "schema": SCHEMA,
        "lock": bundle.lock,
        "kernels": [
            {
                "repo-id": kernel.repo_id,
                "commit": kernel.commit,
                "variants": sorted(kernel.variants),
                "listing": kernel.listing,
                "files": dict(sorted(kernel.files.items())),
            }
            for kernel in sorted(bundle.kernels, key=lambda k: (k.repo_id, k.commit))
        ],
        "blobs": dict(sorted(bundle.blobs.items())),
    }
    return json.dumps(value, indent=1, ensure_ascii=False).encode()


def parse_bundle(data: bytes, path: str = MANIFEST) -> Bundle:
    """Read a manifest.

    Raises:
        FormatError: every fault of it.
    """
    raw: Any = load_json(data, path)
    if not isinstance(raw, dict) or type(raw.get("schema")) is not int:
        message = "this is no manifest of a bundle"
        raise FormatError(path, [Problem(message=message, path=path, code="schema")])
    if raw["schema"] != SCHEMA:
        message = f"expected the schema number {SCHEMA}, found {shown(raw['schema'])}"
        hint = "pip install --upgrade kernelhub" if raw["schema"] > SCHEMA else None
        raise FormatError(path, [Problem(message=message, path=path, hint=hint, code="schema")])
    model, errors = validate(_Bundle, raw)
    found = [problem(e, model=_Bundle, path=path, position=lambda *_: None) for e in errors]
    if model is not None:
        found += _unknown_blobs(model, path)
        found += [
            Problem(message=f"{name!r} is no variant", path=path, code="bundle")
            for kernel in model.kernels
            for name in kernel.variants
            if VariantName.parse(name) is None
        ]
    if found or model is None:
        raise FormatError(path, found)
    kernels = tuple(
        BundledKernel(
            repo_id=kernel.repo_id,
            commit=kernel.commit,
            variants=kernel.variants,
            listing=kernel.listing,
            files=kernel.files,
        )
        for kernel in model.kernels
    )
    return Bundle(lock=model.lock, kernels=kernels, blobs=model.blobs)


def _unknown_blobs(model: _Bundle, path: str) -> list[Problem]:
    return [
        Problem(message=f"{name}: its content is not in the bundle", path=path, code="bundle")
        for kernel in model.kernels
        for name, blob in {**kernel.files, "the listing": kernel.listing}.items()
        if blob not in model.blobs
    ]
