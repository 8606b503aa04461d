"""What is fuzzed: each reader of files that are received, with inputs to start from.

A target is given bytes. It may raise the errors that its reader documents; any other exception, and
a promise that does not hold of what was read, is a finding.
"""

from __future__ import annotations

import base64
import io
import json
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelhub import listings, remembered, signature_file, tar, unbundling
from kernelhub.dispatch.record import read_record
from kernelhub.errors import FormatError, IntegrityError, RequirementError, StoreError, TrustError
from kernelhub.formats import digest, evidence, hf_lock, lock, metadata, policy, policy_toml, tree
from kernelhub.formats.build_toml import migrate, parse_build_toml
from kernelhub.formats.bundle import parse_bundle, render_bundle
from kernelhub.formats.lock_text import render_lock
from kernelhub.formats.names import path_fault
from kernelhub.formats.pyproject_tables import parse_pyproject
from kernelhub.formats.requirement import parse_requirement
from kernelhub.formats.requirements_file import parse_requirements_file
from kernelhub.store import Store

COMMIT = "0123456789abcdef" * 2 + "01234567"
SHA = "ab" * 32
CONTENT = f"sha256:{SHA}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One reader: what it is called with, and inputs that it reads."""

    run: Callable[[bytes], None]
    seeds: tuple[bytes, ...]


def _metadata(data: bytes) -> None:
    with suppress(FormatError):
        read = metadata.parse_metadata(data)
        assert metadata.parse_metadata(metadata.render_metadata(read)) == read
        if read.digest is not None:
            digest.faults(read.digest)
            digest.compare(read.digest, read.digest)


def _digest(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    path, _, value = text.partition("\n")
    digest.is_hashed(path)
    path_fault(path)
    read = digest.Digest(algorithm="sha256", files={path: value})
    if not digest.faults(read):
        assert len(base64.b64decode(value)) == 32
        assert path_fault(path) is None


def _hf_lock(data: bytes) -> None:
    with suppress(FormatError):
        hf_lock.render_hf_lock(hf_lock.parse_hf_lock(data))


def _lock(data: bytes) -> None:
    with suppress(FormatError):
        read = lock.parse_lock(data)
        text = render_lock(read, data.decode("utf-8", "replace"))
        assert lock.parse_lock(text) == read


def _policy(data: bytes) -> None:
    with suppress(FormatError):
        read = policy_toml.parse_policy(data)
        policy.matches(read.allowed, "org/k", COMMIT)


def _requirement(data: bytes) -> None:
    with suppress(RequirementError):
        read = parse_requirement(data.decode("utf-8", "surrogateescape"))
        read.admits(1)
        assert parse_requirement(str(read)) == read


def _requirements_file(data: bytes) -> None:
    with suppress(FormatError):
        parse_requirements_file(data, "kernel-requirements.txt")


def _pyproject(data: bytes) -> None:
    with suppress(FormatError):
        parse_pyproject(data)


def _build_toml(data: bytes) -> None:
    with suppress(FormatError):
        parse_build_toml(data)
    with suppress(FormatError, UnicodeDecodeError):
        migrate(data.decode())


def _tree(data: bytes) -> None:
    with suppress(FormatError):
        read = tree.parse(data.decode("utf-8", "surrogateescape"), "k.py")
        assert tree.parse(tree.render(read), "k.py") == read
        tree.compile_tree(read)


def _evidence(data: bytes) -> None:
    with suppress(FormatError):
        evidence.parse_evidence(data, "k.json")


def _manifest(data: bytes) -> None:
    with suppress(FormatError):
        read = parse_bundle(data)
        assert parse_bundle(render_bundle(read)) == read
        assert not any(path_fault(path) for kernel in read.kernels for path in kernel.files)


def _bundle(data: bytes) -> None:
    """Whatever it is, it is refused or unpacked, and nothing is written elsewhere."""
    with tempfile.TemporaryDirectory(prefix="kernelhub-fuzz-") as folder:
        root = Path(folder)
        (root / "in.tar").write_bytes(data)
        with suppress(FormatError, IntegrityError, StoreError):
            unbundling.read_bundle(root / "in.tar", Store(root / "cache", "http://127.0.0.1:9"))
        assert {path.name for path in root.iterdir()} <= {"in.tar", "cache"}


def _tar(data: bytes) -> None:
    with suppress(IntegrityError):
        for member in tar.members(io.BytesIO(data)):
            assert sum(map(len, member.pieces())) == member.size


def _record(data: bytes) -> None:
    with tempfile.TemporaryDirectory(prefix="kernelhub-fuzz-") as folder:
        path = Path(folder) / "launches.jsonl"
        path.write_bytes(data)
        with suppress(FormatError):
            for launch, count in read_record(path):
                assert count > 0
                assert type(launch).from_json(launch.to_json()) == launch


def _signature(data: bytes) -> None:
    with tempfile.TemporaryDirectory(prefix="kernelhub-fuzz-") as folder:
        (Path(folder) / signature_file.FILE).write_bytes(data)
        with suppress(TrustError):
            signature_file.read_bundle(Path(folder))


def _remembered(data: bytes) -> None:
    read = remembered.parse(data)
    if read is not None and read.asked == read.asked:
        assert remembered.parse(remembered.render(read)) == read


def _listing(data: bytes) -> None:
    for file in listings.parse_listing(data) or ():
        assert path_fault(file.path) is None
        assert isinstance(file.id.value, str)
        assert file.size >= 0


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


_METADATA = {
    "name": "demo-kernel",
    "id": "_demo_kernel_cpu_abc1234",
    "version": 1,
    "license": "Apache-2.0",
    "python-depends": ["einops"],
    "kernel-depends": [{"repo-id": "org/norms", "version": 1}],
    "backend": {"type": "cuda", "archs": ["9.0"]},
    "digest": {"algorithm": "sha256", "files": {"__init__.py": "A" * 43 + "="}},
    "kernelhub": {"schema": 1, "languages": ["triton"], "requires": {"triton": ">=3.0"}},
}
_LOCK = f"""\
schema = 1

[[kernel]]
repo-id = "org/k"
requirement = ">=1,<3"
version = 2
commit = "{COMMIT}"
dependencies = ["org/norms==1"]  # a comment

[kernel.variants]
torch-cpu = "{CONTENT}"
"""
_POLICY = f"""\
schema = 1
binding = true
publishers = ["org"]
repositories = ["org/k"]
commits = ["org/k@{COMMIT}"]
deny = ["evil"]
require-signature = ["org"]

[[signers]]
name = "ci"
publishers = ["org"]
identity = "a@b.c"
issuer = "https://issuer"
revoked = true
"""
_BUILD = """\
[general]
name = "demo-kernel"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cuda", "cpu"]

[torch-noarch]
pyext = ["py"]

[tuning]
workloads = "tuning/workloads.py"
"""
_H200 = {
    "name": "NVIDIA H200",
    "arch": "sm_90",
    "sm_count": 132,
    "memory": 150_754_820_096,
    "shared_memory": 232_448,
}
_TREE = tree.Tree(
    kernel="attention.fwd",
    device=tree.DeviceFacts(**_H200),
    tools={"triton": "3.6.0"},
    source_hash=CONTENT,
    features={"M": "int", "N": "int", "x_dtype": "str"},
    configs=({"BLOCK": 64, "num_warps": 4}, {"BLOCK": 128, "num_warps": 8}),
    root=tree.Split(
        tree.Numeric(("M", tree.Tiles("N", 256)), 4096.5, ("N",)),
        tree.Leaf((0, 1)),
        tree.Split(tree.Categorical("x_dtype", ("float16",)), tree.Leaf((1,)), tree.Leaf((1, 0))),
    ),
)
_SCORE = {"points": 1, "unmeasured": 0, "geomean": 1.0, "worst": 1.1}
_EVIDENCE = {
    "schema": 1,
    "kernel": "attention.fwd",
    "source": CONTENT,
    "device": _H200,
    "tools": {"triton": "3.6.0"},
    "policy": {"clock": "event", "warmup": 3},
    "goal": {"max_slowdown": 1.1, "max_configs": 2, "met": True, "misses": []},
    "fit": {"leaves": 2},
    "scores": dict.fromkeys(("fitted", "held_out", "leave_one_shape_out", "single_best"), _SCORE),
    "configs": [{"BLOCK": 64}, {"BLOCK": 128}],
    "points": [
        {
            "id": "p0",
            "features": {"M": 8, "x_dtype": "float16"},
            "choice": 0,
            "slowdown": 1.0,
            "best_ms": 0.5,
            "cells": [
                {"config": 0, "ms": 0.5, "samples": 9},
                {"config": 1, "reason": "out-of-resources", "detail": "shared memory"},
            ],
        }
    ],
}
_MANIFEST = {
    "schema": 1,
    "lock": SHA,
    "kernels": [
        {
            "repo-id": "org/k",
            "commit": COMMIT,
            "variants": ["torch-cpu"],
            "listing": SHA,
            "files": {"build/torch-cpu/__init__.py": SHA},
        }
    ],
    "blobs": {SHA: 10},
}
_HF_NEW = [{"dependency": {"repo-id": "org/k", "version": 1}, "lock": {"commit": COMMIT}}]
_HF_OLD = [
    {"repo_id": "org/k", "sha": COMMIT,
     "variants": {"torch-cpu": {"hash": f"sha256-{SHA}", "hash_type": "git_lfs_concat"}}}
]  # fmt: skip
_LAUNCH = {
    "v": 1,
    "count": 2,
    "kernel": "k",
    "arguments": [
        ["x", {"kind": "tensor", "dtype": "float16", "shape": [2, 3], "strides": [3, 1],
               "aligned": True, "device": "cuda"}],
        ["n", {"kind": "scalar", "type": "float", "value": "inf"}],
        ["t", {"kind": "tuple", "items": []}],
        ["o", {"kind": "opaque", "type": "Mask", "text": "causal"}],
    ],
}  # fmt: skip
_SIGNATURE = {
    "verificationMaterial": {"publicKey": {"hint": "x"}, "certificate": {"rawBytes": "AAAA"}},
    "dsseEnvelope": {"payload": base64.b64encode(_json({"predicateType": "x"})).decode()},
    "messageSignature": None,
}
_FILE = {"path": "build/torch-cpu/__init__.py", "size": 3, "git_sha1": COMMIT, "sha256": None}


def _bundled() -> bytes:
    manifest, text = _json(_MANIFEST), _LOCK.encode()
    parts = [
        ("bundle.json", manifest),
        ("kernelhub.lock", text),
        (f"blobs/sha256/{SHA}", b"x" * 10),
    ]
    found = b"".join(tar.header(n, len(d)) + d + tar.padding(len(d)) for n, d in parts)
    return found + tar.END


TARGETS: Mapping[str, Target] = {
    "metadata": Target(run=_metadata, seeds=(_json(_METADATA),)),
    "digest": Target(run=_digest, seeds=(b"a/b.py\n" + b"A" * 43 + b"=", b"../x\nAAAA")),
    "hf-lock": Target(run=_hf_lock, seeds=(_json(_HF_NEW), _json(_HF_OLD))),
    "lock": Target(run=_lock, seeds=(_LOCK.encode(),)),
    "policy": Target(run=_policy, seeds=(_POLICY.encode(),)),
    "requirement": Target(run=_requirement, seeds=(b"org/k>=1,<3", b"org/k@" + COMMIT.encode())),
    "requirements-file": Target(
        run=_requirements_file, seeds=(b"org/k==1  # pinned\n-r more.txt\n\norg/n @ abc\n",)
    ),
    "pyproject": Target(
        run=_pyproject,
        seeds=(
            b'[tool.kernelhub.dependencies]\n"org/k" = ">=1"\n',
            b'[tool.kernels.dependencies]\n"org/k" = 1\n',
        ),
    ),
    "build-toml": Target(run=_build_toml, seeds=(_BUILD.encode(),)),
    "tree": Target(run=_tree, seeds=(tree.render(_TREE).encode(),)),
    "evidence": Target(run=_evidence, seeds=(_json(_EVIDENCE),)),
    "manifest": Target(run=_manifest, seeds=(_json(_MANIFEST),)),
    "bundle": Target(run=_bundle, seeds=(_bundled(),)),
    "tar": Target(run=_tar, seeds=(_bundled(),)),
    "record": Target(run=_record, seeds=(_json(_LAUNCH) + b"\n",)),
    "signature": Target(run=_signature, seeds=(_json(_SIGNATURE),)),
    "remembered": Target(
        run=_remembered,
        seeds=(
            remembered.render(
                remembered.Remembered(versions={1: COMMIT}, asked=1.5, trusted=frozenset({COMMIT}))
            ),
        ),
    ),
    "listing": Target(run=_listing, seeds=(_json([_FILE]),)),
}
