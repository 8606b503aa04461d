"""Sigstore bundles: as HF publishes them over metadata.json, and over a model signing statement.

They come from a private Sigstore, made for the test: the real verification runs, offline.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import published
import pytest

from kernelhub import get_kernel, get_loaded_kernels, settings
from kernelhub.errors import TrustError
from kernelhub.signature_file import STATEMENT
from kernelhub.trust import Consent

pytest.importorskip("sigstore", reason="the extra `signing` is not installed")
sys.path.insert(0, str(Path(__file__).parent))

from private_sigstore import PrivateSigstore

Publish = Callable[..., str]
Command = Callable[..., Any]
SIGNATURE = "build/torch-cpu/metadata.json.sigstore"
METADATA = "build/torch-cpu/metadata.json"
WHO = "https://hub.example.org/org/kernels/.github/workflows/build.yml@refs/heads/main"
ISSUER = "https://token.example.org"


@pytest.fixture(scope="module")
def sigstore() -> PrivateSigstore:
    return PrivateSigstore()


@pytest.fixture
def trusting(tmp_path: Path, command: Command) -> Callable[..., None]:
    """Trust an identity of a private Sigstore, for the publisher "demo"."""

    def run(instance: PrivateSigstore, identity: str = WHO, issuer: str = ISSUER) -> None:
        root = tmp_path / "trusted_root.json"
        root.write_text(instance.trusted_root)
        command("trust", "remove", "--signer", "ci")
        outcome = command(
            "trust", "add", "demo", "--signer", "ci", "--identity", identity,
            "--issuer", issuer, "--trusted-root", root,
        )  # fmt: skip
        assert outcome.code == 0, outcome.err

    return run


def load() -> Any:
    return get_kernel("demo/k==1")


def last() -> Any:
    cache = settings.current().cache
    return [k for k in get_loaded_kernels() if cache in k.folder.parents][-1]


def refusal() -> str:
    with pytest.raises(TrustError) as caught:
        load()
    return str(caught.value.__cause__)


def test_a_bundle_as_hf_publishes_them(
    publish: Publish, sigstore: PrivateSigstore, trusting: Callable[..., None]
) -> None:
    files = published.variant({"__init__.py": b"A = 1\n"})
    signature = sigstore.bundle(files[METADATA], WHO, ISSUER)
    publish("demo/k", files | {SIGNATURE: signature})
    trusting(sigstore)
    assert load().A == 1
    assert (last().consent, last().signer) == (Consent.SIGNATURE, "ci")
    trusting(sigstore, identity=WHO.replace("main", "other"))
    assert "ci: does not verify" in refusal()
    trusting(sigstore, issuer="https://other.example.org")
    assert "ci: does not verify" in refusal()
    trusting(PrivateSigstore())
    assert "ci: does not verify" in refusal()
    trusting(sigstore)
    other = published.variant({"__init__.py": b"A = 2\n"})
    publish("demo/k", other | {SIGNATURE: signature})
    assert "made over other bytes of metadata.json" in refusal()
    bare = published.variant({"__init__.py": b"A = 3\n"}, digest=False)
    publish("demo/k", bare | {SIGNATURE: sigstore.bundle(bare[METADATA], WHO, ISSUER)})
    assert "holds no digest of the other files" in refusal()


def statement(files: dict[str, bytes], **changes: Any) -> bytes:
    start = "build/torch-cpu/"
    listed = [
        {
            "algorithm": "sha256",
            "digest": hashlib.sha256(data).hexdigest(),
            "name": path.removeprefix(start),
        }
        for path, data in sorted(files.items())
    ]
    value = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": "k", "digest": {"sha256": "0" * 64}}],
        "predicateType": STATEMENT,
        "predicate": {"serialization": {"method": "files"}, "resources": listed},
    }
    return json.dumps(value | changes).encode()


def test_a_model_signature_through_sigstore(
    publish: Publish, sigstore: PrivateSigstore, trusting: Callable[..., None]
) -> None:
    files = published.variant({"__init__.py": b"A = 1\n", "b.py": b""})
    publish("demo/k", files | {SIGNATURE: sigstore.model_bundle(statement(files), WHO, ISSUER)})
    trusting(sigstore)
    assert load().A == 1
    partial = {path: data for path, data in files.items() if not path.endswith("b.py")}
    signature = sigstore.model_bundle(statement(partial), WHO, ISSUER)
    publish("demo/k", files | {SIGNATURE: signature})
    assert "does not cover b.py" in refusal()
    changed = files | {"build/torch-cpu/b.py": b"evil"}
    signature = sigstore.model_bundle(statement(changed), WHO, ISSUER)
    publish("demo/k", files | {SIGNATURE: signature})
    assert "made over other bytes of b.py" in refusal()
    value = json.loads(sigstore.model_bundle(statement(partial), WHO, ISSUER))
    whole = json.loads(sigstore.model_bundle(statement(files), WHO, ISSUER))
    value["dsseEnvelope"]["payload"] = whole["dsseEnvelope"]["payload"]  # under an old signature
    publish("demo/k", files | {SIGNATURE: json.dumps(value).encode()})
    assert "ci: does not verify" in refusal()
