"""A variant's signature file as it was found: what it is and says, nothing of it verified."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import FormatError, TrustError
from .formats.content import METADATA
from .formats.json_text import load_json
from .hashing import FileId

FILE = "metadata.json.sigstore"
STATEMENT = "https://model_signing/signature/v1.0"
_MOST_BYTES = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """A signature file as it was found.

    Attributes:
        path: where it is.
        data: its bytes.
        statement: the hash of each signed file by path (algorithm and hex), as the statement in it
            says; None for a signature over the bytes of metadata.json.
        stated: the hash of each file that it says it is about: those of the statement, or that of
            metadata.json; of an HF bundle that states none nothing.
        certificate: SHA-256 of the signing certificate in hex, None where a bare key signed.
        key_hint: SHA-256 of the public key, as the signature states it; None where it does not.
    """

    path: Path
    data: bytes
    statement: Mapping[str, FileId] | None
    stated: Mapping[str, FileId]
    certificate: str | None
    key_hint: str | None

    @property
    def kind(self) -> str:
        """What it is, in words."""
        if self.statement is None:
            return "a Sigstore bundle over metadata.json"
        return "an OpenSSF model signature"


def read_bundle(folder: Path) -> Bundle | None:
    """The signature of a variant as it is, not verified; None if there is none.

    Raises:
        TrustError: there is one that cannot be read or is no signature.
    """
    path = folder / FILE
    try:
        with path.open("rb") as stream:
            data = stream.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise TrustError(f"{path} cannot be read: {error.strerror or error}") from error
    if len(data) > _MOST_BYTES:
        raise TrustError(f"{path} is larger than {_MOST_BYTES} bytes, so it is no signature")
    try:
        raw: Any = load_json(data, str(path))
        statement = _statement(raw)
        stated = _message(raw) if statement is None else statement
        certificate = _certificate(raw)
        key_hint = (raw["verificationMaterial"].get("publicKey") or {}).get("hint")
    except (FormatError, KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise TrustError(f"{path} is no signature in a form that is known here") from error
    return Bundle(
        path=path,
        data=data,
        statement=statement,
        stated=stated,
        certificate=certificate,
        key_hint=key_hint,
    )


def _statement(raw: Any) -> dict[str, FileId] | None:
    if raw.get("messageSignature") is not None:
        return None
    payload = base64.b64decode(raw["dsseEnvelope"]["payload"], validate=True)
    return resources(load_json(payload, FILE))


def _message(raw: Any) -> dict[str, FileId]:
    """What a Sigstore bundle over bytes states of them: optional, a hint for whoever looks."""
    digest = raw["messageSignature"].get("messageDigest") or {}
    if digest.get("algorithm") != "SHA2_256":
        return {}
    value = base64.b64decode(digest["digest"], validate=True).hex()
    return {METADATA: FileId("sha256", value)}


def resources(statement: Any) -> dict[str, FileId]:
    """The hash of each file by path, as a signed statement lists them."""
    if statement["predicateType"] != STATEMENT:
        raise ValueError("a statement of another type")
    predicate = statement["predicate"]
    if predicate["serialization"]["method"] != "files":
        raise ValueError("files that are hashed in pieces")
    return {
        str(item["name"]): FileId(str(item["algorithm"]), str(item["digest"]))
        for item in predicate["resources"]
    }


def _certificate(raw: Any) -> str | None:
    material = raw["verificationMaterial"]
    chain = (material.get("x509CertificateChain") or {}).get("certificates") or []
    first = material.get("certificate") or (chain[0] if chain else None)
    if first is None:
        return None
    return hashlib.sha256(base64.b64decode(first["rawBytes"], validate=True)).hexdigest()
