"""Signing built variants in the OpenSSF model signing format, into `metadata.json.sigstore`.

The signature lists the SHA-256 of every file of the variant, metadata.json included. It stands
where HF's tools expect a signature too, which is outside the digest. Needs the extra `signing`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelhub.disk import reading, sibling, translated, write_whole
from kernelhub.errors import InputError, KernelHubError, MissingExtra
from kernelhub.formats.digest import UNHASHED, is_hashed
from kernelhub.formats.metadata import parse_metadata
from kernelhub.signature_file import FILE
from kernelhub.sources.folder import METADATA, find_variants
from kernelhub.verify import verify_folder, walk


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySigner:
    """Signs with an elliptic-curve private key (P-256, P-384 or P-521) in PEM.

    `password` opens an encrypted one.
    """

    key: Path
    password: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateSigner:
    """Signs with a private key that a certificate vouches for; `chain` leads to its authority."""

    key: Path
    certificate: Path
    chain: tuple[Path, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SigstoreSigner:
    """Signs without a lasting key, as the identity that an OpenID provider vouches for.

    Needs the network. `token` is an identity token; without one the environment (CI) is asked with
    `ambient`, else a browser.
    """

    ambient: bool = False
    token: str | None = None


SignerKind = KeySigner | CertificateSigner | SigstoreSigner


def sign(path: Path, signer: SignerKind) -> Mapping[str, Path]:
    """Sign every built variant of a project.

    Args:
        path: the project, its `build/`, or one variant.

    Returns:
        Variant to the signature that was written.

    Raises:
        NotFoundError: nothing is built there.
        IntegrityError: a variant was changed after it was built: nothing is signed then.
        InputError: the key cannot be used, or signing failed.
        MissingExtra: what signs is not installed.
    """
    variants = find_variants(path)
    for folder in variants.values():
        metadata = folder / METADATA
        with reading(metadata):
            data = metadata.read_bytes()
        verify_folder(folder, parse_metadata(data, str(metadata)))
    return {name: _sign_one(folder, signer) for name, folder in variants.items()}


def _sign_one(folder: Path, signer: SignerKind) -> Path:
    try:
        from model_signing import hashing, signing
    except ImportError as error:
        raise MissingExtra("signing", "signing") from error
    target = folder / FILE
    left_out = [place for name, place in walk(folder) if not _is_signed(name)]
    hashes = hashing.Config().use_file_serialization(
        hashing_algorithm="sha256", ignore_paths=left_out
    )
    hashes.set_ignored_paths(paths=[*left_out, target], ignore_git_paths=False)
    config = signing.Config().set_hashing_config(hashes)
    temporary = sibling(folder.with_name(f"{folder.name}.{FILE}"))
    with translated(target):
        try:
            _translated(signer, lambda: _configured(config, signer).sign(folder, temporary))
            write_whole(target, temporary.read_bytes())
        finally:
            temporary.unlink(missing_ok=True)
    return target


def _is_signed(name: str) -> bool:
    return is_hashed(name) or (name in UNHASHED and name != FILE)


def _configured(config: Any, signer: SignerKind) -> Any:
    if isinstance(signer, KeySigner):
        # The library hands the password on to one that wants bytes, whatever its annotation says.
        return config.use_elliptic_key_signer(private_key=signer.key, password=signer.password)
    if isinstance(signer, CertificateSigner):
        return config.use_certificate_signer(
            private_key=signer.key,
            signing_certificate=signer.certificate,
            certificate_chain=signer.chain,
        )
    return config.use_sigstore_signer(
        use_ambient_credentials=signer.ambient, identity_token=signer.token
    )


def _translated(signer: SignerKind, work: Callable[[], object]) -> None:
    try:
        work()
    except (KernelHubError, OSError):
        raise
    except Exception as error:  # the libraries raise many kinds for keys that cannot be used
        what = "Sigstore" if isinstance(signer, SigstoreSigner) else f"the key {signer.key}"
        raise InputError(
            f"signing with {what} failed: {type(error).__name__}: {error}"[:500],
            hint="a key is an elliptic-curve private key in PEM; `kernel-builder sign"
            " --new-key NAME` makes one",
        ) from error


def new_key(name: Path, password: bytes | None = None) -> tuple[Path, Path]:
    """Make a key pair: `<name>.key`, for this user's eyes only, and `<name>.pub`.

    Raises:
        InputError: one of the files exists.
        MissingExtra: what makes keys is not installed.
    """
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError as error:
        raise MissingExtra("making keys", "signing") from error
    private, public = name.with_name(f"{name.name}.key"), name.with_name(f"{name.name}.pub")
    for path in (private, public):
        if path.exists():
            raise InputError(f"{path} exists", hint="choose another name: keys are never replaced")
    key = ec.generate_private_key(ec.SECP256R1())
    lock: serialization.KeySerializationEncryption = (
        serialization.BestAvailableEncryption(password)
        if password
        else serialization.NoEncryption()
    )
    secret = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, lock)
    open_half = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    with translated(private):
        private.touch(mode=0o600, exist_ok=False)
        private.write_bytes(secret)
        public.write_bytes(open_half)
    return private, public
