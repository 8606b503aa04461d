"""Signing built kernels, and holding loads to who signed them."""

from __future__ import annotations

import base64
import datetime
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import published
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from kernelhub import get_kernel, get_loaded_kernels, has_kernel, settings, signatures
from kernelhub.errors import TrustError
from kernelhub.formats.policy_toml import Signer
from kernelhub.serve.testing import RunningHub
from kernelhub.settings import scope
from kernelhub.signature_file import FILE, read_bundle
from kernelhub.trust import Consent

pytest.importorskip("model_signing", reason="the extra `signing` is not installed")

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kernel_builder.cli import group as builder
from kernel_builder.signing import CertificateSigner, KeySigner, new_key, sign

Publish = Callable[..., str]
Command = Callable[..., Any]
SIGNATURE = "build/torch-cpu/metadata.json.sigstore"


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Key pairs by name: "a.key", "a.pub", ..."""
    folder = tmp_path_factory.mktemp("keys")
    return {p.name: p for name in ("a", "b") for p in new_key(folder / name)}


def built(tmp_path: Path, number: int = 1, **facts: object) -> Path:
    """A built project on disk."""
    folder = tmp_path / f"built-{number}-{len(list(tmp_path.iterdir()))}"
    files = published.variant({"__init__.py": b"A = %d\n" % number, ".gitignore": b"x"}, **facts)
    for path, data in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    return folder


def content(folder: Path) -> dict[str, bytes]:
    return {
        p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()
    }


def policy(text: str) -> None:
    path = settings.current().user_policy
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"schema = 1\n{text}")


def signer(name: str, key: Path, **facts: object) -> str:
    pem = key.read_text()
    extra = "".join(f"{k.replace('_', '-')} = {json.dumps(v)}\n" for k, v in facts.items())
    return (
        f'[[signers]]\nname = "{name}"\npublishers = ["demo"]\n{extra}public-key = """\n{pem}"""\n'
    )


def load() -> Any:
    return get_kernel("demo/k==1")


def last() -> Any:
    cache = settings.current().cache
    return [k for k in get_loaded_kernels() if cache in k.folder.parents][-1]


def test_a_signature_is_consent(
    hub: RunningHub, publish: Publish, tmp_path: Path, keys: dict[str, Path]
) -> None:
    folder = built(tmp_path)
    assert list(sign(folder, KeySigner(key=keys["a.key"]))) == ["torch-cpu"]
    publish("demo/k", content(folder))
    with pytest.raises(TrustError):
        load()
    policy(signer("team", keys["a.pub"]))
    answer = has_kernel("demo/k==1")
    assert answer
    assert "if a signer that the policy trusts has signed it" in answer.reason
    assert load().A == 1
    assert (last().consent, last().signer) == (Consent.SIGNATURE, "team")
    asked = len(hub.requests)
    with scope(offline=True):
        assert load().A == 1
    assert len(hub.requests) == asked


def test_other_keys_other_bytes_and_none(
    publish: Publish, tmp_path: Path, keys: dict[str, Path]
) -> None:
    policy(signer("team", keys["b.pub"]))
    one = built(tmp_path, 1)
    sign(one, KeySigner(key=keys["a.key"]))
    publish("demo/k", content(one))
    with pytest.raises(TrustError) as caught:
        load()
    assert "none of the signers" in str(caught.value.__cause__)
    assert "team: does not verify" in str(caught.value.__cause__)
    other = built(tmp_path, 2)
    sign(other, KeySigner(key=keys["b.key"]))
    publish("demo/k", content(one) | {SIGNATURE: content(other)[SIGNATURE]})
    with pytest.raises(TrustError, match="signature for other bytes: it was made over other bytes"):
        load()
    publish("demo/k", content(built(tmp_path, 3)) | {SIGNATURE: None})
    with pytest.raises(TrustError) as caught:
        load()
    assert "carries no signature" in str(caught.value.__cause__)
    publish("demo/k", content(one) | {SIGNATURE: b"{}"})
    with pytest.raises(TrustError) as caught:
        load()
    assert "no signature in a form" in str(caught.value.__cause__)


def test_a_signature_that_is_required(
    publish: Publish, tmp_path: Path, keys: dict[str, Path], command: Command, project: Path
) -> None:
    publish("demo/k", content(built(tmp_path, 1)))
    policy('require-signature = ["demo"]\n' + signer("team", keys["a.pub"]))
    for arguments in ({}, {"trust_remote_code": True}):
        with pytest.raises(TrustError, match="carries no signature") as caught:
            get_kernel("demo/k==1", **arguments)
        assert "asks for a signature of demo/k" in caught.value.hint
    (project / "kernel-requirements.txt").write_text("demo/k\n")
    command("lock")
    with pytest.raises(TrustError):
        get_kernel("demo/k")  # a lock is no signature
    assert "carries no signature" in command("sync").err
    folder = built(tmp_path, 2)
    sign(folder, KeySigner(key=keys["a.key"]))
    publish("demo/k", content(folder))
    command("lock", "--upgrade-all")
    assert "signed by team" in command("sync").out
    assert get_kernel("demo/k").A == 2
    assert (last().consent, last().signer) == (Consent.LOCK, "team")
    outcome = command("verify")
    assert outcome.code == 3, "the unsigned one is still on this disk"
    assert "signature: team" in outcome.out
    assert "signature: refused" in outcome.out


def test_no_consent_but_required(publish: Publish, tmp_path: Path, keys: dict[str, Path]) -> None:
    folder = built(tmp_path, 1)
    sign(folder, KeySigner(key=keys["a.key"]))
    publish("demo/k", content(folder))
    policy('require-signature = ["*"]\n' + signer("team", keys["a.pub"], trust=False))
    with pytest.raises(TrustError, match="does not mark its publisher"):
        load()
    assert get_kernel("demo/k==1", trust_remote_code=True).A == 1
    assert last().signer == "team"


def test_rotation_and_revocation(publish: Publish, tmp_path: Path, keys: dict[str, Path]) -> None:
    folder = built(tmp_path, 1)
    sign(folder, KeySigner(key=keys["a.key"]))
    publish("demo/k", content(folder))
    old, new = signer("old", keys["a.pub"]), signer("new", keys["b.pub"])
    policy('require-signature = ["demo"]\n' + old + new)
    assert load().A == 1
    policy('require-signature = ["demo"]\n' + signer("old", keys["a.pub"], revoked=True) + new)
    with pytest.raises(TrustError, match="signed by 'old', which is revoked"):
        load()
    policy(signer("old", keys["a.pub"], revoked=True))  # also where none is required
    with pytest.raises(TrustError, match="revoked"):
        get_kernel("demo/k==1", trust_remote_code=True)
    sign(folder, KeySigner(key=keys["b.key"]))
    publish("demo/k", content(folder))
    policy('require-signature = ["demo"]\n' + signer("old", keys["a.pub"], revoked=True) + new)
    assert load().A == 1
    assert last().signer == "new"


def test_a_revoked_signer_is_named_before_the_bytes_are_here(
    publish: Publish, tmp_path: Path, keys: dict[str, Path], command: Command, project: Path
) -> None:
    folder = built(tmp_path, 1)
    sign(folder, KeySigner(key=keys["a.key"]))
    publish("demo/k", content(folder))
    policy(signer("old", keys["a.pub"], revoked=True))
    with pytest.raises(TrustError, match=r"its signer is revoked \(old\)") as caught:
        load()
    assert "trust add" not in caught.value.hint
    assert "sign it anew" in caught.value.hint
    (project / "kernel-requirements.txt").write_text("demo/k\n")
    outcome = command("lock")
    assert outcome.code == 0
    assert "warning: demo/k: its signer is revoked (old)" in outcome.err
    policy(signer("old", keys["a.pub"], revoked=True) + signer("new", keys["b.pub"]))
    assert "warning" not in command("lock").err


def test_a_signature_that_the_machine_asks_for_is_by_a_signer_of_the_machine(
    publish: Publish, tmp_path: Path, keys: dict[str, Path]
) -> None:
    folder = built(tmp_path, 1)
    sign(folder, KeySigner(key=keys["a.key"]))
    publish("demo/k", content(folder))
    policy(signer("mine", keys["a.pub"]))
    machine = tmp_path / "machine.toml"
    for text in ('require-signature = ["demo"]\n', "binding = true\n"):
        machine.write_text("schema = 1\n" + text)
        with scope(machine_policy=machine), pytest.raises(TrustError):
            load()
        machine.write_text("schema = 1\n" + text + signer("theirs", keys["a.pub"]))
        with scope(machine_policy=machine):
            assert load().A == 1
            policy(signer("mine", keys["a.pub"], revoked=True))
            with pytest.raises(TrustError, match="signed by 'mine', which is revoked"):
                load()
            policy(signer("mine", keys["a.pub"]))


def test_an_unsigned_kernel_of_a_trusted_publisher_still_loads(
    publish: Publish, keys: dict[str, Path]
) -> None:
    publish("trusted-org/k", published.variant({"__init__.py": b"A = 1\n"}))
    policy(signer("team", keys["a.pub"]).replace('["demo"]', '["*"]'))
    assert get_kernel("trusted-org/k==1").A == 1
    assert last().consent is Consent.PUBLISHER


def test_what_a_signature_has_to_cover(
    publish: Publish, tmp_path: Path, keys: dict[str, Path]
) -> None:
    """A signer may leave files out of a statement; what is imported has to be in it."""
    from model_signing import hashing, signing

    folder = built(tmp_path, 1)
    variant = folder / "build/torch-cpu"
    target = variant / "metadata.json.sigstore"
    partial = hashing.Config().use_file_serialization(hashing_algorithm="sha256")
    partial.set_ignored_paths(paths=[target, variant / "__init__.py"], ignore_git_paths=True)
    config = signing.Config().set_hashing_config(partial)
    config.use_elliptic_key_signer(private_key=keys["a.key"]).sign(variant, target)
    publish("demo/k", content(folder))
    policy(signer("team", keys["a.pub"]))
    with pytest.raises(TrustError) as caught:
        load()
    assert "does not cover .gitignore, __init__.py" in str(caught.value.__cause__)


def authority(
    name: str, issuer: tuple[Any, Any] | None = None, *, ca: bool
) -> tuple[Any, x509.Certificate]:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.timezone.utc)
    usage = x509.KeyUsage(
        digital_signature=not ca, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, key_cert_sign=ca, crl_sign=ca,
        encipher_only=False, decipher_only=False,
    )  # fmt: skip
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer[1].subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    if not ca:
        codes = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING])
        builder = builder.add_extension(codes, critical=False)
    signing_key = issuer[0] if issuer else key
    return key, builder.sign(signing_key, hashes.SHA256())


def pem(value: Any) -> bytes:
    if isinstance(value, x509.Certificate):
        return value.public_bytes(serialization.Encoding.PEM)
    return value.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def test_certificates(publish: Publish, tmp_path: Path, keys: dict[str, Path]) -> None:
    root = authority("root", ca=True)
    leaf = authority("release", root, ca=False)
    stranger = authority("stranger", ca=True)
    files = {"ca.pem": root[1], "leaf.pem": leaf[1], "leaf.key": leaf[0]}
    for name, value in files.items():
        (tmp_path / name).write_bytes(pem(value))
    folder = built(tmp_path, 1)
    sign(
        folder,
        CertificateSigner(
            key=tmp_path / "leaf.key",
            certificate=tmp_path / "leaf.pem",
            chain=(tmp_path / "ca.pem",),
        ),
    )
    publish("demo/k", content(folder))

    def trusting(certificate: x509.Certificate, extra: str = "") -> str:
        text = pem(certificate).decode()
        return (
            '[[signers]]\nname = "ca"\npublishers = ["demo"]\n'
            f'{extra}certificates = """\n{text}"""\n'
        )

    policy(trusting(stranger[1]))
    with pytest.raises(TrustError) as caught:
        load()
    assert "does not verify" in str(caught.value.__cause__)
    policy(signer("key", keys["a.pub"]))
    with pytest.raises(TrustError) as caught:
        load()
    assert "made with a certificate" in str(caught.value.__cause__)
    policy(trusting(root[1]))
    assert load().A == 1
    fingerprint = leaf[1].fingerprint(hashes.SHA256()).hex(":")
    policy(trusting(root[1], f'revoked-certificates = ["{fingerprint}"]\n'))
    with pytest.raises(TrustError, match="certificate that signed it is revoked"):
        load()
    with pytest.raises(TrustError, match="certificate that signed it is revoked"):
        get_kernel("demo/k==1", trust_remote_code=True)


def test_build_sign_publish_load(
    hub: RunningHub, tmp_path: Path, keys: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = CliRunner().invoke
    monkeypatch.chdir(tmp_path)
    (tmp_path / "torch-ext/demo_kernel").mkdir(parents=True)
    (tmp_path / "torch-ext/demo_kernel/__init__.py").write_text("A = 1\n")
    (tmp_path / "build.toml").write_text(
        '[general]\nname = "demo-kernel"\nversion = 1\nedition = 5\nlicense = "MIT"\n'
        'backends = ["cpu", "cuda"]\n[general.hub]\nrepo-id = "demo/k"\n[torch-noarch]\n'
    )
    for arguments in (["build"], ["sign", "--key", str(keys["a.key"])], ["publish"]):
        done = run(builder, arguments)
        assert done.exit_code == 0, (done.output, done.exception)
    policy('require-signature = ["*"]\n' + signer("team", keys["a.pub"]))
    assert load().A == 1
    assert last().signer == "team"
    assert run(builder, ["build"]).exit_code == 0  # a build anew carries no old signature
    assert not list((tmp_path / "build").rglob("*.sigstore"))


def test_signing_refuses_what_was_changed_after_the_build(
    tmp_path: Path, keys: dict[str, Path]
) -> None:
    folder = built(tmp_path, 1)
    (folder / "build/torch-cpu/__init__.py").write_bytes(b"A = 2\n")
    result = CliRunner().invoke(builder, ["sign", str(folder), "--key", str(keys["a.key"])])
    assert "does not hold what was published" in str(result.exception)
    assert not (folder / SIGNATURE).exists()


def test_the_sign_command(tmp_path: Path, keys: dict[str, Path]) -> None:
    folder = built(tmp_path, 1)
    (folder / "build/torch-cpu/__pycache__").mkdir()
    (folder / "build/torch-cpu/__pycache__/x.pyc").write_bytes(b"x")
    run = CliRunner().invoke
    made = run(builder, ["sign", "--new-key", str(tmp_path / "n"), "--password"], input="pw\npw\n")
    assert made.exit_code == 0, made.output
    assert (tmp_path / "n.key").stat().st_mode & 0o077 == 0
    again = run(builder, ["sign", "--new-key", str(tmp_path / "n")])
    assert "exists" in str(again.exception)
    locked = ["sign", str(folder), "--key", str(tmp_path / "n.key")]
    assert "signing with the key" in str(run(builder, locked).exception)
    done = run(builder, [*locked, "--password", "--json"], input="pw\n")
    assert done.exit_code == 0, done.output
    assert (folder / SIGNATURE).is_file()
    statement = read_bundle(folder / "build/torch-cpu").statement
    assert sorted(statement) == [".gitignore", "__init__.py", "metadata.json"]
    for arguments in ([], ["--key", str(keys["a.key"]), "--sigstore"]):
        assert run(builder, ["sign", str(folder), *arguments]).exit_code == 2
    wrong = run(builder, ["sign", str(folder), "--key", str(keys["a.pub"])])
    assert "signing with the key" in str(wrong.exception)
    assert not [p for p in folder.rglob("*") if ".metadata" in p.name or "torch-cpu." in p.name]


def test_a_bundle_of_hf_by_nobody_that_is_known(
    publish: Publish, tmp_path: Path, keys: dict[str, Path]
) -> None:
    """A Sigstore bundle over metadata.json is read as one, and refused without a valid identity."""
    value = {
        "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
        "verificationMaterial": {
            "certificate": {"rawBytes": base64.b64encode(b"no certificate").decode()}
        },
        "messageSignature": {"messageDigest": {}, "signature": ""},
    }
    folder = built(tmp_path, 1)
    publish("demo/k", content(folder) | {SIGNATURE: json.dumps(value).encode()})
    policy(
        '[[signers]]\nname = "hf"\npublishers = ["demo"]\nidentity = "https://example.org/w"\n'
        'issuer = "https://issuer.example.org"\n' + signer("team", keys["a.pub"])
    )
    load_offline = scope(offline=True)
    get_kernel("demo/k==1", trust_remote_code=True)
    with load_offline, pytest.raises(TrustError) as caught:
        load()
    text = str(caught.value.__cause__)
    assert "hf: does not verify" in text
    assert "team: the signature is one by Sigstore" in text


@given(st.binary(max_size=200) | st.recursive(
    st.none() | st.integers() | st.text(max_size=5),
    lambda inner: st.dictionaries(
        st.sampled_from(["verificationMaterial", "dsseEnvelope", "messageSignature", "payload",
                         "publicKey", "certificate", "rawBytes", "x"]), inner, max_size=4)
    | st.lists(inner, max_size=2), max_leaves=8).map(lambda v: json.dumps(v).encode()))  # fmt: skip
@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_signature_file_is_read_or_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / FILE).write_bytes(data)
    nobody = Signer.model_validate(
        {"name": "x", "publishers": ["*"], "identity": "i", "issuer": "j"}
    )
    (tmp_path / "metadata.json").write_bytes(b"{}")
    with pytest.raises(TrustError):
        signatures.check(tmp_path, {}, [nobody], offline=True)


def test_trust_add_a_signer(
    publish: Publish, tmp_path: Path, keys: dict[str, Path], command: Command
) -> None:
    folder = built(tmp_path, 1)
    sign(folder, KeySigner(key=keys["a.key"]))
    publish("demo/k", content(folder))
    outcome = command(
        "trust", "add", "demo", "--signer", "team", "--key", keys["a.pub"], "--require-signature"
    )
    assert outcome.code == 0, outcome.err
    assert load().A == 1
    assert "signer team (key, trusted) for demo" in command("trust", "list").out
    wrong = command("trust", "add", "demo", "--signer", "x", "--key", keys["a.key"])
    assert "private key" in wrong.err
    assert command("trust", "revoke", "team").code == 0
    assert "signer team (key, REVOKED) for demo" in command("trust", "list").out
    with pytest.raises(TrustError, match="signed by 'team', which is revoked"):
        get_kernel("demo/k==1", trust_remote_code=True)
    assert command("trust", "revoke", "nobody").code == 1
    assert "trust remove --signer team" in command("trust", "remove", "team").err
    assert command("trust", "remove", "--signer", "team").code == 0
    with pytest.raises(TrustError):
        get_kernel("demo/k==1", trust_remote_code=True)  # still required
    assert command("trust", "remove", "demo", "--require-signature").code == 0
    assert get_kernel("demo/k==1", trust_remote_code=True).A == 1


def test_a_key_without_its_signer_trusts_nobody(command: Command, keys: dict[str, Path]) -> None:
    """Else who forgets one option trusts a publisher in place of what its key signs."""
    for options in (["--key", keys["a.pub"]], ["--identity", "x"], ["--no-consent"]):
        assert command("trust", "add", "demo", *options).code == 2
    assert command("trust", "add", "demo", "--signer", "team").code == 2
    assert "(there is none)" in command("trust", "list").out.splitlines()[-1]


def test_inspect_tells_of_the_signature(
    publish: Publish, tmp_path: Path, keys: dict[str, Path], command: Command
) -> None:
    folder = built(tmp_path, 1)
    sign(folder, KeySigner(key=keys["a.key"]))
    publish("demo/k", content(folder))
    assert "an OpenSSF model signature, not verified" in command("inspect", "demo/k").out
    policy(signer("team", keys["a.pub"]))
    assert "verified: by 'team'" in command("inspect", "demo/k").out
    policy(signer("team", keys["b.pub"]))
    assert "not accepted: " in command("inspect", "demo/k").out
    assert "no: demo/k: the Hub does not mark" in command("inspect", "demo/k").out
    policy(signer("team", keys["a.pub"]))
    assert "yes, by signature" in command("inspect", "demo/k").out
    policy(signer("team", keys["a.pub"], revoked=True))
    assert "signed by 'team', which is revoked" in command("inspect", "demo/k").out


@pytest.mark.parametrize("kind", ["model signing", "hf"])
def test_a_signature_for_other_bytes_bars_whatever_else_allows_it(
    publish: Publish, tmp_path: Path, keys: dict[str, Path], command: Command, kind: str
) -> None:
    one, other = built(tmp_path, 1), built(tmp_path, 2)
    sign(other, KeySigner(key=keys["a.key"]))
    signature = content(other)[SIGNATURE]
    if kind == "hf":
        stated = hashlib.sha256(content(other)["build/torch-cpu/metadata.json"]).digest()
        digest = {"algorithm": "SHA2_256", "digest": base64.b64encode(stated).decode()}
        message = {"messageDigest": digest, "signature": ""}
        signature = json.dumps({"verificationMaterial": {}, "messageSignature": message}).encode()
    publish("demo/k", content(one) | {SIGNATURE: signature})
    assert get_kernel("demo/k==1", trust_remote_code=True).A == 1, "nobody is named for it"
    for trust in (True, False):
        policy('repositories = ["demo/k"]\n' + signer("team", keys["a.pub"], trust=trust))
        for arguments in ({}, {"trust_remote_code": True}):
            with pytest.raises(TrustError, match="carries a signature for other bytes"):
                get_kernel("demo/k==1", **arguments)
    assert "signature: refused" in command("verify").out
    (allowed,) = [s for s in command("inspect", "demo/k").out.splitlines() if "allowed" in s]
    assert "carries a signature for other bytes" in allowed
