"""Side by side with HF's own parsers: what they take for a noarch kernel is taken here.

Where this toolchain decides otherwise on purpose, the case says why.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelhub.errors import FormatError
from kernelhub.formats.build_toml import parse_build_toml
from kernelhub.formats.digest import Digest, compare, hash_bytes, is_hashed
from kernelhub.formats.metadata import parse_metadata
from kernelhub.formats.variant import BACKENDS

peer = pytest.importorskip("kernels._rust", reason="HF's client is not installed")

BASE: dict[str, str] = {
    "name": '"my-kernel"', "version": "1", "edition": "5", "license": '"MIT"',
    "backends": '["cuda"]',
}  # fmt: skip


def toml(general: dict[str, str | None], rest: str = "[torch-noarch]\n") -> str:
    pairs = {key: value for key, value in {**BASE, **general}.items() if value is not None}
    return "[general]\n" + "".join(f"{k} = {v}\n" for k, v in pairs.items()) + rest


def peer_takes(text: str, folder: Path) -> bool:
    (folder / "build.toml").write_bytes(text.encode())
    try:
        peer.Build.open(folder)
    except ValueError:
        return False
    return True


def ours_takes(text: str) -> bool:
    try:
        parse_build_toml(text)
    except FormatError:
        return False
    return True


GENERAL = [
    {}, {"backends": "[]"}, {"backends": '["cuda", "cuda"]'}, {"backends": '["CUDA"]'},
    {"backends": None}, {"backends": '"cuda"'},
    *({"backends": f'["{b}"]'} for b in (*BACKENDS, "npu", "universal")),
    *({"name": f'"{n}"'} for n in ["a", "ab", "a--b", "a-", "-a", "A", "a_b", "ab\\n", "k" * 300]),
    *({"version": v} for v in ["0", "-1", "1.0", '"1"', "true", "9223372036854775807", None]),
    *({"edition": e} for e in ["4", "6", '"5"', "5.0"]),
    {"license": '""'}, {"license": "1"}, {"license": None}, {"license": '"whatever"'},
    {"python-depends": '["numpy"]'}, {"python-depends": "[1]"}, {"python_depends": "[]"},
    *({"kernel-depends": f"[{{ {item} }}]"} for item in [
        'repo-id = "o/d", version = 2', 'repo-id = "o/d", revision = "main"', 'repo-id = "o/d"',
        'repo-id = "o/d", version = 2, revision = "x"', 'repo-id = "o/d", version = -1',
        'repo-id = "o/d", version = 1, x = 1', 'version = 1',
    ]),
    *({key: f'"{url}"'} for key in ["upstream", "source"] for url in [
        "https://h/o/r", "HTTPS://h/o", "http://h", "git://h/o", "ssh://git@h/o", "git+ssh://h/o",
        "git+https://h/o", "git+http://h/o", "git@h.org:o/r.git", "git@h:~/x", "git@h:22/x", "@h:p",
        "https:///x", " https://h/o", "https://u:p@h/o", "https://h/o?x=1#f", "https://[::1]/o",
        "git@h:a b", "é@host:x",
        "", "file:///x", "h.org:o/r", "host:path", "ftp://h/o", "https://", "https://h o/r", "/a/b",
        "./a", "o/r", "user@:p", "user@host:", "https://h:99999/o", "git@ho st:x", "user@host/path",
        "a:b@host:x", "user@[::1]:p", "git@host:/abs", "c:/x", "git+file:///x",
    ]),
    {"minver": '"1.0"'}, {"kernels-minver": '"0.14.0"'}, {"rocm": "{}"}, {"cpu": "{}"}, {"x": "1"},
    {"hub": "{}"}, {"hub": '{ repo-id = "o/k", branch = "b" }'}, {"hub": "{ x = 1 }"},
    *({"cuda": f"{{ {key} = {value} }}"} for key in ["minver", "maxver"] for value in [
        '"12.8"', '"12"', '"12.8.1"', '"012.08"', '"-1.2"', '"+1.2"', '" 1.2"', "12.8", '"1.x"',
        '"99999999999999999999999.1"', '""',
    ]),
    {"cuda": '{ kernel-depends = [], python-depends = ["x"] }'}, {"cuda": "{ x = 1 }"},
    {"neuron": '{ kernel-depends = [], python-depends = ["nki"] }'}, {"xpu": "{}"},
    {"tpu": '{ python-depends = ["x"] }'}, {"tpu": "{ kernel-depends = [] }"},
]  # fmt: skip


@pytest.mark.parametrize("general", GENERAL, ids=lambda g: json.dumps(g)[:60])
def test_general(general: dict[str, str | None], tmp_path: Path) -> None:
    text = toml(general)
    assert ours_takes(text) is peer_takes(text, tmp_path)


REST = [
    "[torch-noarch]\npyext = []\n", '[torch-noarch]\npyext = ["json", "../x", ""]\n',
    '[torch-noarch]\ncuda_capabilities = ["9.0", "foo"]\nrocm_archs = []\n',
    "[torch-noarch]\ncuda_capabilities = 9.0\n", '[torch-noarch]\nsrc = ["a.cu"]\n',
    "[torch-noarch]\n[kernel]\n", "[[torch-noarch]]\n", "", "[torch-noarch]\n[tool]\n",
    "[torch-noarch]\n[torch]\n", "[x-noarch]\n", "[torch-noarch]\n[torch-noarch]\n",
    "[torch-noarch]\nx = 1979-05-27\n", "torch-noarch = 1\n",
]  # fmt: skip


@pytest.mark.parametrize("rest", REST)
def test_tables(rest: str, tmp_path: Path) -> None:
    text = toml({}, rest)
    assert ours_takes(text) is peer_takes(text, tmp_path)


@pytest.mark.parametrize("wrap", ["\ufeff{}", "# é\n{}", "{}#"])
def test_text(wrap: str, tmp_path: Path) -> None:
    for text in (wrap.format(toml({})), wrap.format(toml({}).replace("\n", "\r\n"))):
        assert ours_takes(text) is peer_takes(text, tmp_path) is True


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (toml({"edition": None}), "edition 4 is migrated by a command, never silently"),
        (toml({"name": '"class"'}), "a package of this name cannot be imported"),
        (toml({"name": '"json"'}), "a package of this name hides the standard library's"),
        (toml({"kernel-depends": '[{ repo-id = "d", version = 1 }]'}), "no Hub has such a name"),
        (toml({"hub": '{ repo-id = "x y" }'}), "no Hub has such a name"),
        (toml({"hub": '{ branch = "" }'}), "git has no such branch"),
        (toml({}, "[torch]\nsrc = []\n"), "compiled kernels are not packed here"),
        (toml({}, "[tvm-ffi]\nsrc = []\n"), "compiled kernels are not packed here"),
        (toml({}, '[torch-noarch]\n[kernel.a]\nbackend = "cuda"\ndepends = []\nsrc = []\n'),
         "compiled kernels are not packed here"),
    ],
)  # fmt: skip
def test_what_only_the_peer_takes(text: str, why: str, tmp_path: Path) -> None:
    assert peer_takes(text, tmp_path), why
    assert not ours_takes(text), why


@pytest.mark.parametrize(
    "text",
    [
        toml({}, '[torch-noarch]\ncuda-capabilities = ["9.0"]\nrocm-archs = ["gfx942"]\n'),
        toml({}, "[jax-noarch]\n"),
        toml({"dependencies": '["numpy"]'}),
        toml({"requires": '{ torch = ">=2.6" }'}),
        toml({}, '[torch-noarch]\nbackends = ["cuda"]\n'),
        toml({}, '[torch-noarch]\n[tuning]\nworkloads = "w.py"\n'),
    ],
)
def test_what_only_we_take(text: str, tmp_path: Path) -> None:
    assert ours_takes(text)
    assert not peer_takes(text, tmp_path)


PLAIN: dict[str, Any] = {
    "name": "my-kernel", "id": "_my_kernel_cuda_1", "version": 1, "license": "MIT",
    "python-depends": [], "backend": {"type": "cuda"},
}  # fmt: skip
HASH = hash_bytes(b"")
COMMIT = "Aa" * 20
CHANGES: dict[str, list[Any]] = {
    "name": ["a", "A", "a_b", "class", "a--b", None, 1],
    "id": ["", "a b", "../x", 1, None],
    "version": ["1", 1.0, -1, True, 0, 2**64 - 1, 2**64, None],
    "license": ["", 1, None],
    "python-depends": [["zzz"], ["a", "a"], [1], "x", None],
    "backend": [
        *({"type": b} for b in ["cann", "cpu", "metal", "neuron", "rocm", "tpu", "xpu", "npu"]),
        {"type": "CUDA"}, {"type": "universal"}, {"type": None}, {}, "cuda", None,
        {"type": "cuda", "x": 1}, *({"type": "cuda", "archs": a} for a in [None, [], ["x"], "9.0",
                                                                         [1]]),
    ],
    "kernels-minver": ["0.17.0", "0.17", "0.17.0rc1", "1.2.3.4", "00.1.2", "+1.2.3", " 1.2.3", "",
                       1, None, "99999999999999999999.1.2", "1.2.-3"],
    "kernel-depends": [
        None, [], [{"repo-id": "o/d", "version": 1}], [{"repo-id": "o/d", "version": 1, "x": 1}],
        [{"repo-id": "o/d"}], [{"repo-id": "o/d", "version": 1, "revision": "a"}],
        [{"repo-id": "o/d", "version": None, "revision": "a"}], [{"version": 1}],
        [{"repo-id": "o/d", "revision": ""}], {},
    ],
    "upstream": ["", "https://h/o", "git@h:o", "host:o", 1, None],
    "source": ["", "https://h/o", "git@h:o", "host:o", 1, None],
    "digest": [
        None, {"algorithm": "sha256", "files": {}}, {"algorithm": "SHA256", "files": {}},
        {"algorithm": "sha256"}, {"files": {}}, {"algorithm": "sha256", "files": {"a": HASH}},
        {"algorithm": "sha256", "files": {"a": HASH}, "x": 1}, {"algorithm": "md5", "files": {}},
        {"algorithm": "sha256", "files": None}, {"algorithm": "sha256", "files": {"a": 1}},
        {"algorithm": "sha512", "files": {"a": hash_bytes(b"", "sha512")}},
    ],
    "provenance": [
        None, {}, {"kernel-builder": {"version": "1"}}, {"kernel-builder": {"version": 1}},
        {"kernel-builder": {"version": "1", "commit": COMMIT, "dirty": True}},
        {"kernel-builder": {"version": "1", "sha": COMMIT, "dirty": True}},
        {"kernel-builder": {"version": "1", "commit": COMMIT, "sha": COMMIT, "dirty": True}},
        {"kernel-builder": {"version": "1", "commit": COMMIT}},
        {"kernel-builder": {"version": "1", "dirty": True}},
        {"kernel-builder": {"version": "1", "commit": None, "dirty": None}},
        {"kernel-builder": {"version": "1", "commit": "abc", "dirty": True}},
        {"kernel-builder": {"version": "1", "x": 2}, "y": 1, "kernel": None},
        {"kernel-builder": {"version": ""}, "kernel": {"commit": COMMIT, "dirty": False}},
        {"kernel-builder": {"version": ""}, "kernel": {"sha": "b" * 64, "dirty": False, "z": 1}},
        {"kernel-builder": {"version": ""}, "kernel": {"commit": COMMIT}},
        {"kernel-builder": {"version": ""}, "kernel": {"commit": COMMIT, "dirty": 1}},
    ],
    "x": [1, None, {"a": [1.5e300]}],
}  # fmt: skip


def both(data: bytes) -> tuple[bool, bool]:
    """Whether we take it, and whether the peer does; if both, that they read the same."""
    try:
        ours = parse_metadata(data)
    except FormatError:
        ours = None
    try:
        theirs = peer.Metadata.from_bytes(data)
    except ValueError:
        theirs = None
    if ours is not None and theirs is not None:
        assert (ours.name, ours.id, ours.version) == (str(theirs.name), theirs.id, theirs.version)
        assert list(ours.python_depends) == theirs.python_depends
        assert ours.backend.type == str(theirs.backend.backend_type).lower()
        assert ours.backend.archs == (
            None if theirs.backend.archs is None else tuple(theirs.backend.archs)
        )
        assert [d.repo_id for d in ours.kernel_depends] == [
            d.repo_id for d in theirs.kernel_depends
        ]
        assert (ours.digest is None) == (theirs.digest is None)
        if ours.digest is not None:
            assert dict(ours.digest.files) == theirs.digest.files
        if ours.provenance is not None and ours.provenance.kernel is not None:
            assert ours.provenance.kernel.commit == theirs.provenance.kernel.commit
    return ours is not None, theirs is not None


@pytest.mark.parametrize("key", CHANGES)
def test_metadata(key: str) -> None:
    for value in CHANGES[key]:
        ours, theirs = both(json.dumps(PLAIN | {key: value}).encode())
        assert ours is theirs, value
    if key not in PLAIN:
        return
    ours, theirs = both(json.dumps({k: v for k, v in PLAIN.items() if k != key}).encode())
    assert not ours
    assert not theirs


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from(sorted(CHANGES)), st.integers(0, 15), max_size=4))
def test_metadata_of_any_combination(chosen: dict[str, int]) -> None:
    raw = PLAIN | {key: CHANGES[key][i % len(CHANGES[key])] for key, i in chosen.items()}
    ours, theirs = both(json.dumps(raw).encode())
    assert ours is theirs


def test_the_peer_ignores_our_key() -> None:
    extension = {"schema": 1, "framework": "jax", "requires": {"jax": ">=0.8"}}
    assert both(json.dumps(PLAIN | {"kernelhub": extension}).encode()) == (True, True)


def test_the_peer_hashes_a_folder_as_we_do(tmp_path: Path) -> None:
    contents = {
        ".hidden": b"h", "a.pyo": b"o", ".pyc": b"1", "..pyc": b"2", "b.PYC": b"3", "x.pyc": b"4",
        "d.pyc/x": b"5", "x__pycache__/a": b"6", "sub/__pycache__/a.txt": b"7",
        "metadata.json": b"8", "metadata.json.sigstore": b"9", "é.py": b"11",
        "sub/metadata.json": b"10",
        "METADATA.JSON": b"12",
    }  # fmt: skip
    for name, data in contents.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    theirs = peer.Digest.hash_variant(peer.DigestAlgorithm.SHA256, tmp_path)
    ours = {name: hash_bytes(data) for name, data in contents.items() if is_hashed(name)}
    digest = Digest(algorithm="sha256", files=ours)
    assert compare(digest, Digest(algorithm="sha256", files=theirs.files)) == {}
    assert list(theirs.files) == sorted(ours, key=str.encode)
