"""`kernel-builder sign`: sign what was built."""

from __future__ import annotations

import json
from pathlib import Path

import click

from .signing import CertificateSigner, KeySigner, SignerKind, SigstoreSigner, new_key, sign

_file = click.Path(path_type=Path, dir_okay=False, exists=True)


@click.command("sign")
@click.argument("path", type=click.Path(path_type=Path, exists=True), default=Path())
@click.option("--key", type=_file, help="Private key (PEM, elliptic curve).")
@click.option("--password", is_flag=True, help="Ask for the password of the key.")
@click.option("--certificate", type=_file, help="Certificate of the key (PEM).")
@click.option("--chain", type=_file, multiple=True, help="Its authorities; may be given again.")
@click.option("--sigstore", is_flag=True, help="Sign as yourself through Sigstore (network).")
@click.option("--ambient", is_flag=True, help="With --sigstore: as this CI job.")
@click.option("--new-key", "name", type=click.Path(path_type=Path), help="Make a key pair instead.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    path: Path,
    key: Path | None,
    password: bool,
    certificate: Path | None,
    chain: tuple[Path, ...],
    sigstore: bool,
    ambient: bool,
    name: Path | None,
    as_json: bool,
) -> None:
    """Sign every built variant of a project, before it is published.

    Users name the public key (or the authority, or the identity) in their trust policy.
    """
    secret = _password(new=name is not None) if password else None
    if name is not None:
        private, public = new_key(name, secret)
        if as_json:
            click.echo(json.dumps({"private": str(private), "public": str(public)}))
            return
        click.echo(f"{private}: keep it secret\n{public}: for the policies of your users")
        return
    written = sign(path, _signer(key, secret, certificate, chain, sigstore, ambient))
    if as_json:
        click.echo(json.dumps({variant: str(file) for variant, file in written.items()}))
        return
    for variant, file in written.items():
        click.echo(f"{variant}: {file}")


def _password(*, new: bool) -> bytes:
    text: str = click.prompt("Password", hide_input=True, confirmation_prompt=new, err=True)
    return text.encode()


def _signer(
    key: Path | None,
    password: bytes | None,
    certificate: Path | None,
    chain: tuple[Path, ...],
    sigstore: bool,
    ambient: bool,
) -> SignerKind:
    if sigstore == (key is not None):
        raise click.UsageError(
            "give either --key (with --certificate, if it has one) or --sigstore"
        )
    if sigstore or key is None:
        return SigstoreSigner(ambient=ambient)
    if certificate is not None:
        return CertificateSigner(key=key, certificate=certificate, chain=chain)
    return KeySigner(key=key, password=password)
