"""The content digest: one hash that names every byte of a variant.

Defined as `sha256:` and the hex of the SHA-256 of this text in UTF-8: one line for each file of the
variant that its digest covers, and one for `metadata.json`,

    <algorithm> <hex of the file's hash> <path relative to the variant, with />\\n

sorted by the bytes of the path. The algorithm is that of the digest in `metadata.json` (sha256
where it has none), and always sha256 for `metadata.json` itself. Byte code, `__pycache__` and the
signature `metadata.json.sigstore` are not part of it.
"""

from __future__ import annotations

import base64
import hashlib
import re

from .digest import Digest

METADATA = "metadata.json"
_CONTENT = re.compile(r"sha256:[0-9a-f]{64}", re.ASCII)


def content_digest(metadata: bytes, digest: Digest) -> str:
    """The content digest of a variant.

    Args:
        metadata: the bytes of its metadata.json.
        digest: hashes of its other files: the digest that metadata.json holds, or one that was
            computed where it holds none.
    """
    hashes = {
        path: (digest.algorithm, base64.b64decode(value).hex())
        for path, value in digest.files.items()
    }
    hashes[METADATA] = ("sha256", hashlib.sha256(metadata).hexdigest())
    lines = (
        f"{algorithm} {value} {path}\n"
        for path, (algorithm, value) in sorted(
            hashes.items(), key=lambda item: item[0].encode("utf-8", "surrogateescape")
        )
    )
    text = "".join(lines).encode("utf-8", "surrogateescape")
    return f"sha256:{hashlib.sha256(text).hexdigest()}"


def content_fault(text: str) -> str | None:
    """Why `text` is no content digest, or None."""
    if _CONTENT.fullmatch(text):
        return None
    return "expected sha256: and 64 hexadecimal digits, in lower case"
