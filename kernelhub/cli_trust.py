"""`kernelhub trust add|remove|list`: the user's trust policy."""

from __future__ import annotations

import json
from pathlib import Path

import click

from . import settings
from .cli_lock import json_option
from .disk import alone_with, reading, translated, write_whole
from .errors import InputError
from .formats.policy import Policy, subject_fault
from .formats.policy_edit import (
    with_item,
    with_revoked,
    with_signer,
    without_item,
    without_signer,
)
from .formats.policy_toml import parse_policy
from .formats.toml_lines import decode_text
from .policies import Rules, rules


@click.group()
def trust() -> None:
    """Say whose kernels may run without trust_remote_code."""


@trust.command("add")
@click.argument("subject", metavar="ORG|ORG/KERNEL|ORG/KERNEL@COMMIT", required=False)
@click.option("--deny", is_flag=True, help="Never run it, whatever else allows it.")
@click.option("--require-signature", is_flag=True, help="Run it only if it is signed.")
@click.option("--signer", metavar="NAME", help="Name a signer, with one of the next options.")
@click.option("--key", type=click.Path(path_type=Path, exists=True), help="Public key (PEM).")
@click.option(
    "--certificates",
    type=click.Path(path_type=Path, exists=True),
    help="Certificate authorities (PEM).",
)
@click.option("--identity", help="Sigstore identity, with --issuer.")
@click.option("--issuer", help="OpenID issuer of the identity.")
@click.option(
    "--trusted-root",
    type=click.Path(path_type=Path, exists=True),
    help="Trusted root (JSON) of a private Sigstore.",
)
@click.option(
    "--no-consent", is_flag=True, help="The signer's signature is looked at, and allows nothing."
)
def trust_add(
    subject: str | None,
    deny: bool,
    require_signature: bool,
    signer: str | None,
    key: Path | None,
    certificates: Path | None,
    identity: str | None,
    issuer: str | None,
    trusted_root: Path | None,
    no_consent: bool,
) -> None:
    """Trust a publisher, a repository, one commit of it, or who signs for them."""
    path = _path()
    if subject is None:
        raise click.UsageError("name a publisher, a repository, or a commit of one")
    known = key or certificates or identity or issuer or trusted_root or no_consent
    if known and signer is None:  # what was meant to hold for signatures would hold for anything
        raise click.UsageError("name the signer that these options are about: --signer NAME")
    facts: dict[str, object] | None = None
    if signer is not None:
        if not (key or certificates or identity):
            raise click.UsageError(
                "say how the signer is known: --key, --certificates, or --identity with --issuer"
            )
        facts = {"name": signer, "publishers": [subject]}
        facts |= {k: v for k, v in (("identity", identity), ("issuer", issuer)) if v is not None}
        files = {"public-key": key, "certificates": certificates, "trusted-root": trusted_root}
        facts |= {name: _read(file) for name, file in files.items() if file is not None}
        if no_consent:
            facts["trust"] = False
    with alone_with(path):
        text = _text(path)
        if facts is not None:
            text = with_signer(text, facts, str(path))
        elif not require_signature:
            text = with_item(text, "deny" if deny else _list_of(subject), subject, str(path))
        if require_signature:
            text = with_item(text, "require-signature", subject, str(path))
        _write(path, text)
    click.echo(f"{path}: {_said(subject, deny=deny, signer=signer, signed=require_signature)}")
    _warn_if_binding(rules(settings.current()))


@trust.command("remove")
@click.argument("subject", metavar="ORG|ORG/KERNEL|ORG/KERNEL@COMMIT", required=False)
@click.option("--signer", metavar="NAME", help="Remove this signer.")
@click.option("--deny", is_flag=True, help="Remove it from what is denied.")
@click.option("--require-signature", is_flag=True, help="Ask for no signature of it any more.")
def trust_remove(
    subject: str | None, signer: str | None, deny: bool, require_signature: bool
) -> None:
    """Take back what `add` has said."""
    path = _path()
    if signer is None and subject is None:
        raise click.UsageError("name what to remove")
    if not path.exists():
        raise InputError(f"{path} does not exist: nothing is trusted by it")
    with alone_with(path):
        text = _text(path) or ""
        if signer is not None:
            text = without_signer(text, signer, str(path))
        elif subject is not None:
            listed = "deny" if deny else "require-signature" if require_signature else ""
            text = _without(text, subject, listed, path)
        _write(path, text)
    click.echo(f"{path}: removed {signer or subject}")


@trust.command("revoke")
@click.argument("signer")
def trust_revoke(signer: str) -> None:
    """Refuse whatever SIGNER has signed, whatever else allows it. It stays in the policy."""
    path = _path()
    if not path.exists():
        raise InputError(f"{path} does not exist: it names no signer {signer!r}")
    with alone_with(path):
        _write(path, with_revoked(_text(path) or "", signer, str(path)))
    click.echo(f"{path}: {signer} is revoked; what it has signed does not run")


@trust.command("list")
@json_option
def trust_list(as_json: bool) -> None:
    """Show the policies in force: the machine's, yours, and what the settings name."""
    now = settings.current()
    found = rules(now)
    if as_json:
        click.echo(
            json.dumps(
                {
                    "binding": found.binding,
                    "machine": _value(found.machine),
                    "user": _value(found.user),
                    "settings": sorted(found.settings),
                }
            )
        )
        return
    for title, policy, path in (
        ("machine", found.machine, now.machine_policy),
        ("user", found.user, now.user_policy),
    ):
        click.echo(f"{title}: {policy.path or f'{path} (there is none)'}")
        for line in _lines(policy):
            click.echo(f"  {line}")
    if found.settings:
        click.echo(f"KERNELHUB_TRUST: {', '.join(sorted(found.settings))}")
    _warn_if_binding(found)


def _lines(policy: Policy) -> list[str]:
    lines = [f"allow {subject}" for subject in sorted(policy.allowed)]
    lines += [f"deny {subject}" for subject in sorted(policy.denied)]
    lines += [f"require a signature of {subject}" for subject in sorted(policy.require_signature)]
    for signer in policy.signers:
        state = "REVOKED" if signer.revoked else "trusted" if signer.trust else "no consent"
        publishers = ", ".join(signer.publishers)
        lines.append(f"signer {signer.name} ({signer.kind}, {state}) for {publishers}")
    if policy.path is not None:
        lines.append(f"publishers that the Hub marks: {'yes' if policy.hub_trusted else 'no'}")
        lines.append(f"a project's lock is consent: {'yes' if policy.locks else 'no'}")
        if policy.require_lock:
            lines.append("only locked kernels run")
    return lines


def _value(policy: Policy) -> dict[str, object] | None:
    if policy.path is None:
        return None
    return {
        "path": policy.path,
        "binding": policy.binding,
        "allowed": sorted(policy.allowed),
        "denied": sorted(policy.denied),
        "require_signature": sorted(policy.require_signature),
        "hub_trusted": policy.hub_trusted,
        "locks": policy.locks,
        "require_lock": policy.require_lock,
        "signers": [s.model_dump(mode="json", exclude_none=True) for s in policy.signers],
    }


def _without(text: str, subject: str, listed: str, path: Path) -> str:
    """Who removes a signer may leave out that it is one."""
    try:
        return without_item(text, listed or _list_of(subject), subject, str(path))
    except InputError as error:
        if any(signer.name == subject for signer in parse_policy(text, str(path)).signers):
            error.hint = f"it is a signer: `kernelhub trust remove --signer {subject}`"
        raise


def _list_of(subject: str) -> str:
    if fault := subject_fault(subject):
        raise InputError(f"{subject!r}: {fault}")
    if "@" in subject:
        return "commits"
    return "repositories" if "/" in subject else "publishers"


def _path() -> Path:
    path = settings.current().user_policy
    if path is None:
        raise InputError("these settings name no policy of the user")
    return path


def _text(path: Path) -> str | None:
    with reading(path):
        return decode_text(path.read_bytes(), str(path)) if path.exists() else None


def _read(path: Path) -> str:
    with reading(path):
        return decode_text(path.read_bytes(), str(path))


def _write(path: Path, text: str | None) -> None:
    with translated(path):
        write_whole(path, (text or "").encode())


def _said(subject: str, *, deny: bool, signer: str | None, signed: bool) -> str:
    if signer is not None:
        return f"{signer} may sign for {subject}" + (", which has to be signed" if signed else "")
    if signed:
        return f"{subject} has to be signed"
    return f"{subject} is {'denied' if deny else 'trusted'}"


def _warn_if_binding(found: Rules) -> None:
    if found.binding:
        click.echo(
            f"note: {found.machine.path} is binding: what you trust does not count here", err=True
        )
