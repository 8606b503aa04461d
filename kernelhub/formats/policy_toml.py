"""A trust policy: whose kernels may run, and what must be signed. TOML, for users and machines.

    schema = 1
    binding = true                    # of a machine's policy: nothing else can allow more
    publishers = ["org"]              # every kernel of these
    repositories = ["other/kernel"]
    commits = ["third/kernel@<40 hex>"]
    deny = ["org/broken", "org/k@<40 hex>", "bad-org"]
    hub-trusted = true                # publishers that the Hub marks as trusted
    locks = false                     # whether being in a project's lock is consent
    require-lock = false              # whether a kernel that is in no lock is refused
    require-signature = ["org", "*"]

    [[signers]]
    name = "org-2026"
    publishers = ["org"]              # whose kernels it may sign; repositories too
    trust = true                      # whether its signature is consent
    public-key = '''-----BEGIN PUBLIC KEY-----...'''
    # or certificates = '''PEM of the authorities'''
    # or identity = "https://.../workflow.yml@refs/heads/main" and issuer = "https://...",
    #    with trusted-root = '''{...}''' for a private Sigstore
    revoked = false

Unknown keys are refused: a policy that says something that is not understood may not be followed
half.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, StrictBool, model_validator

from kernelhub.errors import FormatError, Problem

from .models import Authored, problem, shown, validate
from .policy import PUBLISHER, Policy, subject_fault
from .scalars import RepoId, Text, custom_error
from .toml_lines import Positions, load_toml

SCHEMA = 1
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)


def _subject(value: str) -> str:
    if fault := subject_fault(value):
        raise custom_error(fault, 'for example "org", "org/kernel" or "org/kernel@<commit>"')
    return value


def _subject_or_all(value: str) -> str:
    return value if value == "*" else _subject(value)


def _publisher(value: str) -> str:
    if not PUBLISHER.fullmatch(value):
        raise custom_error(f"{value[:60]!r} is no publisher", 'for example "org"')
    return value


def _commit(value: str) -> str:
    if "@" not in value or subject_fault(value):
        raise custom_error("a commit is written org/name@<40 hexadecimal digits>")
    return value


def _pem(value: str) -> str:
    if "-----BEGIN " not in value or "-----END " not in value:
        raise custom_error("expected PEM text (-----BEGIN ...)")
    if "PRIVATE KEY" in value:
        raise custom_error("this is a private key, and a policy holds the public one only")
    return value


def _sha256(value: str) -> str:
    value = value.replace(":", "").lower()
    if not _SHA256.fullmatch(value):
        raise custom_error("expected the SHA-256 of a certificate in 64 hexadecimal digits")
    return value


Publisher = Annotated[Text, AfterValidator(_publisher)]
Subject = Annotated[Text, AfterValidator(_subject)]
SubjectOrAll = Annotated[Text, AfterValidator(_subject_or_all)]
PinnedCommit = Annotated[Text, AfterValidator(_commit)]
Pem = Annotated[Text, AfterValidator(_pem)]


class Signer(Authored):
    """Who may sign, and how a signature of theirs is known."""

    name: Text = Field(min_length=1, description="Name in messages.", examples=["org-2026"])
    publishers: tuple[SubjectOrAll, ...] = Field(
        description="Publishers or repositories whose kernels they may sign; * is all.",
        examples=[["org"]],
    )
    trust: StrictBool = Field(True, description="Whether their signature is consent to run.")
    public_key: Pem | None = Field(None, description="PEM of an elliptic-curve public key.")
    certificates: Pem | None = Field(
        None, description="PEM of the certificate authorities that certify the signing key."
    )
    identity: Text | None = Field(None, description="Sigstore identity, such as a workflow's URL.")
    issuer: Text | None = Field(None, description="OpenID issuer of that identity.")
    trusted_root: Text | None = Field(
        None, description="JSON of the trusted root of a private Sigstore; default: the public one."
    )
    revoked: StrictBool = Field(False, description="Whether signatures of theirs are refused.")
    revoked_certificates: tuple[Annotated[Text, AfterValidator(_sha256)], ...] = Field(
        (), description="SHA-256, in hex, of signing certificates that are refused."
    )

    @model_validator(mode="after")
    def _one_way(self) -> Signer:
        ways = [self.public_key, self.certificates, self.identity]
        if sum(way is not None for way in ways) != 1 or (self.identity is None) != (
            self.issuer is None
        ):
            raise custom_error(
                "expected exactly one of 'public-key', 'certificates', and 'identity' with 'issuer'"
            )
        if self.trusted_root is not None and self.identity is None:
            raise custom_error("'trusted-root' belongs to an 'identity'")
        return self

    @property
    def kind(self) -> Literal["key", "certificate", "sigstore"]:
        """How their signatures are verified."""
        if self.public_key is not None:
            return "key"
        return "certificate" if self.certificates is not None else "sigstore"


class PolicyFile(Authored):
    """The tables of a policy."""

    model_config = ConfigDict(title="policy.toml")

    schema_version: Literal[1] = Field(alias="schema", description="Major version of the format.")
    binding: StrictBool = Field(
        False, description="Of a machine's policy: whether nothing else can allow more."
    )
    publishers: tuple[Publisher, ...] = Field((), description="Publishers that may run.")
    repositories: tuple[RepoId, ...] = Field((), description="Repositories that may run.")
    commits: tuple[PinnedCommit, ...] = Field(
        (), description="Commits that may run.", examples=[["org/kernel@<40 hex>"]]
    )
    deny: tuple[Subject, ...] = Field((), description="What may not run, whatever allows it.")
    hub_trusted: StrictBool = Field(
        True, description="Whether publishers that the Hub marks as trusted may run."
    )
    locks: StrictBool | None = Field(
        None,
        description="Whether being in a project's lock is consent; default: unless binding.",
    )
    require_lock: StrictBool = Field(False, description="Whether only locked kernels run.")
    require_signature: tuple[SubjectOrAll, ...] = Field(
        (), description="Publishers or repositories that have to be signed; * is all."
    )
    signers: tuple[Signer, ...] = Field((), description="Who may sign.")


def parse_policy(data: str | bytes, path: str = "policy.toml") -> Policy:
    """Read a policy.

    Args:
        data: its text, or its bytes as they are on disk.
        path: its name in error texts.

    Raises:
        FormatError: every fault, each with line and column.
    """
    raw, positions = load_toml(data, path)
    if (newer := _newer(raw, path, positions)) is not None:
        raise FormatError(path, [newer])
    model, errors = validate(PolicyFile, raw)
    found = [
        problem(e, model=PolicyFile, path=path, position=lambda where, _: positions.value(where))
        for e in errors
    ]
    if model is not None:
        found += _repeated(model, path, positions)
    if found or model is None:
        raise FormatError(path, found)
    return Policy(
        path=path,
        binding=model.binding,
        allowed=frozenset((*model.publishers, *model.repositories, *model.commits)),
        denied=frozenset(model.deny),
        hub_trusted=model.hub_trusted,
        locks=model.locks if model.locks is not None else not model.binding,
        require_lock=model.require_lock,
        require_signature=frozenset(model.require_signature),
        signers=model.signers,
    )


def _repeated(model: PolicyFile, path: str, positions: Positions) -> list[Problem]:
    names: set[str] = set()
    found: list[Problem] = []
    for index, signer in enumerate(model.signers):
        if signer.name in names:
            line, column = positions.value(("signers", index, "name"))
            message = f"two signers are called {signer.name!r}"
            found.append(Problem(message=message, path=path, line=line, column=column))
        names.add(signer.name)
    return found


def _newer(raw: dict[str, Any], path: str, positions: Positions) -> Problem | None:
    schema = raw.get("schema")
    if type(schema) is not int or schema <= SCHEMA:
        return None
    line, column = positions.value(("schema",))
    return Problem(
        message=f"schema {shown(schema)} is of a newer kernelhub; this one reads {SCHEMA}",
        path=path,
        at="schema",
        line=line,
        column=column,
        hint="pip install --upgrade kernelhub",
        code="schema",
    )
