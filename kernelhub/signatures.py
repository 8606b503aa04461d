"""Signatures of variants: `metadata.json.sigstore`, beside the metadata, outside the digest.

Two kinds, told apart by their content:

- The OpenSSF model signing format: a signed statement that lists the hash of every file. Made with
  a key, a certificate or Sigstore; verified by the package `model-signing` and, for Sigstore, by
  `sigstore`.
- What HF's builder publishes: a Sigstore bundle over the bytes of `metadata.json`, whose digest
  names every other file.

Only what the statement says of each file is believed, and it has to name every file that may be
imported. Needs the extra `signing`.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import FormatError, KernelHubError, MissingExtra, TrustError
from .formats.json_text import load_json
from .formats.metadata import parse_metadata
from .hashing import FileId, hash_file
from .policies import Rules
from .signature_file import FILE, Bundle, read_bundle, resources
from .verify import METADATA, Manifest, manifest_of

if TYPE_CHECKING:
    from .formats.policy_toml import Signer

_HASHES = ("sha256", "sha512")
_ANEW = "its publisher has to sign it anew with a key that is not"


class Barred(TrustError):
    """Its signature tells against it, so it is refused whatever else allows it."""


class _Refused(Exception):
    """This signature is not one of this signer over these bytes; the text says why."""


def check(folder: Path, manifest: Manifest, signers: Iterable[Signer], *, offline: bool) -> Signer:
    """Find the signer whose signature the variant carries.

    Args:
        folder: the variant, whose bytes are those of `manifest`.
        manifest: what each of its files is.
        signers: who may sign it; a signature of a revoked one is refused.
        offline: whether Sigstore's trust root may not be renewed over the network.

    Returns:
        The signer.

    Raises:
        Barred: it is by a revoked signer, or states other bytes.
        TrustError: there is no signature, or none of these signers made it over these bytes.
        MissingExtra: what verifies signatures is not installed.
    """
    bundle = read_bundle(folder)
    if bundle is None:
        raise TrustError(f"{folder} carries no signature ({FILE})")
    reasons: dict[str, str] = {}
    signers = tuple(signers)
    _refuse_barred(folder, manifest, signers, offline=offline)
    for signer in (s for s in signers if not s.revoked):
        try:
            _check_one(folder, manifest, bundle, signer, offline=offline)
        except _Refused as error:
            reasons[signer.name] = str(error)
            continue
        return signer
    why = "".join(f"\n  - {name}: {reason}" for name, reason in reasons.items())
    raise TrustError(
        f"{folder}: none of the signers that the policy names for it has signed it"
        f"{why or ' (the policy names none)'}"
    )


def enforce(
    repo_id: str, folder: Path, manifest: Manifest, rules: Rules, *, is_consent: bool, offline: bool
) -> str | None:
    """Hold a variant to what the policies say of signatures.

    Args:
        is_consent: whether a signature is what allows this kernel to run at all.

    Returns:
        The name of its signer; None where nothing asks for a signature.

    Raises:
        TrustError, MissingExtra: as `check`.
    """
    signers = rules.signers(repo_id)
    required = rules.signature_required_by(repo_id)
    _refuse_barred(folder, manifest, signers, offline=offline)
    if required is None and not is_consent:
        return None
    if is_consent:
        signers = tuple(s for s in signers if s.trust)
    try:
        return check(folder, manifest, signers, offline=offline).name
    except TrustError as error:
        if required is not None and error.hint is None:
            error.hint = f"{required} asks for a signature of {repo_id}"
        raise


def _refuse_barred(
    folder: Path, manifest: Manifest, signers: Sequence[Signer], *, offline: bool
) -> None:
    """Raises Barred for a signature by who is revoked and, if anybody is named, of other bytes."""
    _refuse_revoked(folder, manifest, signers, offline=offline)
    if signers:
        _refuse_other_bytes(folder, manifest)


def _refuse_other_bytes(folder: Path, manifest: Manifest) -> None:
    """What a signature only claims to be about is enough: nobody has to have made it."""
    try:
        bundle = read_bundle(folder)
    except TrustError:
        return  # it is nobody's; `check` says so where one is asked for
    if bundle is None:
        return
    try:
        held = {**manifest, METADATA: _sha256(_read(folder / METADATA))}
        known = {path for path, file in bundle.stated.items() if file.algorithm in _HASHES}
        _compare(folder, bundle.stated, {path: held[path] for path in held.keys() & known})
    except _Refused as error:
        text = f"{folder} carries a signature for other bytes: {error}"
        raise Barred(text, hint="its publisher has to sign what is published") from error


def _refuse_revoked(
    folder: Path, manifest: Manifest, signers: Iterable[Signer], *, offline: bool
) -> None:
    """Raises Barred if a signer that is revoked has signed it, or a certificate that is."""
    suspects = [signer for signer in signers if signer.revoked or signer.revoked_certificates]
    bundle = read_bundle(folder) if suspects else None
    if bundle is None:
        return
    for signer in suspects:
        # What the signature only claims to be made with is enough to refuse it.
        if bundle.certificate in signer.revoked_certificates:
            raise Barred(f"{folder}: the certificate that signed it is revoked", hint=_ANEW)
        try:
            if signer.revoked:
                _check_one(folder, manifest, bundle, signer, offline=offline)
                raise Barred(f"{folder} is signed by {signer.name!r}, which is revoked", hint=_ANEW)
        except _Refused:
            continue  # not theirs


_checked: set[tuple[object, ...]] = set()


def _check_one(
    folder: Path, manifest: Manifest, bundle: Bundle, signer: Signer, *, offline: bool
) -> None:
    """Raises _Refused unless `signer` has signed exactly these bytes."""
    key = (folder, bundle.data, repr(signer), frozenset(manifest.items()))
    if key in _checked:
        return
    metadata = _read(folder / METADATA)
    if bundle.statement is not None:
        _compare(folder, bundle.statement, {**manifest, METADATA: _sha256(metadata)})
    else:
        _compare_digest(folder, metadata, manifest)
    try:
        _verify(folder, bundle, metadata, signer, offline=offline)
    except (KernelHubError, _Refused):
        raise
    except Exception as error:  # the libraries raise many kinds for hostile files; all mean no
        raise _Refused(f"does not verify: {type(error).__name__}: {error}"[:400]) from error
    _checked.add(key)


def _verify(
    folder: Path, bundle: Bundle, metadata: bytes, signer: Signer, *, offline: bool
) -> None:
    if signer.kind == "sigstore":
        _verify_sigstore(bundle, metadata, signer, offline=offline)
    elif bundle.statement is None:
        raise _Refused("the signature is one by Sigstore, and this signer uses a key")
    else:
        _verify_model_signing(folder, bundle, signer)


def _verify_model_signing(folder: Path, bundle: Bundle, signer: Signer) -> None:
    try:
        from model_signing import hashing, verifying
    except ImportError as error:
        raise MissingExtra("verifying signatures", "signing") from error
    if signer.kind == "key" and bundle.certificate is None and not bundle.key_hint:
        raise _Refused("it was made by a release of model-signing before 1.0: sign it anew")
    if signer.kind == "key" and bundle.certificate is not None:
        raise _Refused("it was made with a certificate, and this signer uses a key")
    if signer.kind == "certificate" and bundle.certificate is None:
        raise _Refused("it was made with a key, and this signer uses certificates")
    with tempfile.TemporaryDirectory(prefix="kernelhub-") as temporary:
        trusted = Path(temporary) / "trusted.pem"
        trusted.write_text(signer.public_key or signer.certificates or "", "utf-8")
        signature = Path(temporary) / FILE
        signature.write_bytes(bundle.data)  # the bytes that were parsed, whatever the file is now
        algorithm = next((file.algorithm for file in (bundle.statement or {}).values()), "sha256")
        hashes = hashing.Config().use_file_serialization(hashing_algorithm=algorithm)
        hashes.set_ignored_paths(paths=[], ignore_git_paths=False)
        config = verifying.Config().set_hashing_config(hashes).set_ignore_unsigned_files(True)
        if signer.kind == "key":
            config.use_elliptic_key_verifier(public_key=trusted)
        else:
            config.use_certificate_verifier(certificate_chain=[trusted])
        config.verify(folder, signature)


def _verify_sigstore(bundle: Bundle, metadata: bytes, signer: Signer, *, offline: bool) -> None:
    try:
        from sigstore.models import Bundle as SigstoreBundle
        from sigstore.verify import Verifier
        from sigstore.verify.policy import Identity
    except ImportError as error:
        raise MissingExtra("verifying signatures", "signing") from error
    parsed = SigstoreBundle.from_json(bundle.data)
    if signer.trusted_root is None:
        verifier = Verifier.production(offline=offline)
    else:
        verifier = Verifier(trusted_root=_trusted_root(signer.trusted_root))
    who = Identity(identity=signer.identity or "", issuer=signer.issuer)
    if bundle.statement is None:
        verifier.verify_artifact(metadata, parsed, who)
        return
    _, payload = verifier.verify_dsse(parsed, who)
    if resources(load_json(payload, FILE)) != bundle.statement:
        raise _Refused("the signed statement is not the one that was read")


def _trusted_root(text: str) -> Any:
    """Sigstore's reader takes a file only."""
    from sigstore.models import TrustedRoot

    with tempfile.TemporaryDirectory(prefix="kernelhub-") as folder:
        path = Path(folder) / "trusted_root.json"
        path.write_text(text, "utf-8")
        return TrustedRoot.from_file(str(path))


def _compare(folder: Path, signed: Mapping[str, FileId], held: Mapping[str, FileId]) -> None:
    """Every file that is held has to be signed, as the bytes that it is."""
    missing = sorted(held.keys() - signed.keys())
    if missing:
        raise _Refused(f"it does not cover {', '.join(missing[:5])}")
    for path, file in held.items():
        expected = signed[path]
        if expected.algorithm not in _HASHES:
            raise _Refused(f"{path} is signed by a hash that is not used here")
        if expected.algorithm != file.algorithm:
            file = FileId(expected.algorithm, _hash(folder / path, expected.algorithm))
        if expected != file:
            raise _Refused(f"it was made over other bytes of {path}")


def _compare_digest(folder: Path, metadata: bytes, held: Manifest) -> None:
    """What is held has to be what the digest in the signed metadata.json names."""
    try:
        digest = parse_metadata(metadata, METADATA).digest
    except FormatError as error:
        raise _Refused("metadata.json is malformed") from error
    if digest is None:
        raise _Refused("it covers metadata.json only, and that holds no digest of the other files")
    if dict(held) != manifest_of(digest, str(folder)):
        raise _Refused("the files are not those that the signed metadata.json names")


def _hash(path: Path, algorithm: str) -> str:
    try:
        return hash_file(path, algorithm)
    except OSError as error:
        raise _Refused(f"{path} cannot be read: {error.strerror or error}") from error


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise _Refused(f"{path} cannot be read: {error.strerror or error}") from error


def _sha256(data: bytes) -> FileId:
    return FileId("sha256", hashlib.sha256(data).hexdigest())
