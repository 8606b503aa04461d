"""The note beside a stored variant that says what was stored. Values only, no I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .hashing import FileId

SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What was stored as one variant: ids and sizes of its files, by path in the variant."""

    repo_id: str
    commit: str
    variant: str
    files: Mapping[str, FileId]
    size: int
    installed: float


def render_receipt(receipt: Receipt) -> bytes:
    """The bytes to keep; `parse_receipt` reads them."""
    files = {path: [i.algorithm, i.value] for path, i in sorted(receipt.files.items())}
    value = {
        "schema": SCHEMA,
        "repo_id": receipt.repo_id,
        "size": receipt.size,
        "installed": receipt.installed,
        "files": files,
    }
    return json.dumps(value, indent=1).encode()


def parse_receipt(data: bytes, commit: str, variant: str) -> Receipt | None:
    """What `render_receipt` wrote, or None if this is something else (damaged, or newer)."""
    try:
        value: Any = json.loads(data)
        if value["schema"] != SCHEMA:
            return None
        return Receipt(
            repo_id=str(value["repo_id"]),
            commit=commit,
            variant=variant,
            files={str(p): FileId(str(a), str(v)) for p, (a, v) in value["files"].items()},
            size=int(value["size"]),
            installed=float(value["installed"]),
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
        return None
