"""metadata.json, through its parser and renderer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelhub.errors import FormatError, Problem
from kernelhub.formats.digest import Digest, hash_bytes
from kernelhub.formats.json_text import load_json
from kernelhub.formats.metadata import (
    BackendInfo,
    BuilderVersion,
    GitState,
    KernelDependency,
    KernelhubExtension,
    Metadata,
    Provenance,
    metadata_value,
    parse_metadata,
    render_metadata,
)
from kernelhub.formats.metadata_model import judge
from kernelhub.formats.variant import BACKENDS

COMMIT = "715eaa24490779a6961cf24e2a849c25afdc7801"
PLAIN: dict[str, Any] = {
    "name": "my-kernel",
    "id": "_my_kernel_cuda_1a2b3c4",
    "version": 1,
    "license": "Apache-2.0",
    "python-depends": [],
    "backend": {"type": "cuda"},
}

RENDERED = """\
{
  "name": "my-kernel",
  "id": "_my_kernel_cuda_1a2b3c4",
  "version": 1,
  "kernels-minver": "0.14.0",
  "license": "Apache-2.0",
  "python-depends": [],
  "kernel-depends": [],
  "backend": {
    "type": "cuda",
    "archs": [
      "9.0"
    ]
  },
  "digest": {
    "algorithm": "sha256",
    "files": {
      "__init__.py": "/KardTdWp3FPaa2jJM6+G3oyWTU6keEvL/51odIwfVQ="
    }
  }
}"""


def read(**changes: Any) -> Metadata:
    raw = PLAIN | {key.replace("_", "-"): value for key, value in changes.items()}
    return parse_metadata(json.dumps(raw).encode())


def problems(data: bytes, path: str = "build/torch-cuda/metadata.json") -> tuple[Problem, ...]:
    with pytest.raises(FormatError) as caught:
        parse_metadata(data, path)
    return caught.value.problems


def test_what_is_written_for_a_noarch_build() -> None:
    metadata = Metadata(
        name="my-kernel",
        id="_my_kernel_cuda_1a2b3c4",
        version=1,
        kernels_minver="0.14.0",
        license="Apache-2.0",
        python_depends=(),
        backend=BackendInfo(type="cuda", archs=("9.0",)),
        digest=Digest(
            algorithm="sha256",
            files={"__init__.py": "/KardTdWp3FPaa2jJM6+G3oyWTU6keEvL/51odIwfVQ="},
        ),
    )
    assert render_metadata(metadata).decode() == RENDERED
    assert parse_metadata(RENDERED.encode()) == metadata


def test_order_of_every_key() -> None:
    metadata = Metadata(
        name="my-kernel",
        id="_my_kernel_cpu_1",
        version=2**64 - 1,
        kernels_minver="0.17.0",
        license="",
        upstream="https://example.org/o/r",
        source="git@example.org:o/r",
        python_depends=("einops",),
        kernel_depends=(KernelDependency(repo_id="org/k", version=1),),
        backend=BackendInfo(type="cpu"),
        digest=Digest(algorithm="sha512", files={}),
        provenance=Provenance(
            kernel_builder=BuilderVersion(version="0.1.0"),
            kernel=GitState(commit=COMMIT, dirty=False),
        ),
        extension=KernelhubExtension(
            framework="jax", languages=("pallas",), requires={"jax": ">=0.8"}, dependencies=("a",)
        ),
    )
    raw = json.loads(render_metadata(metadata))
    assert list(raw) == [
        "name", "id", "version", "kernels-minver", "license", "upstream", "source",
        "python-depends", "kernel-depends", "backend", "digest", "provenance", "kernelhub",
    ]  # fmt: skip
    assert raw["backend"] == {"type": "cpu"}
    assert raw["kernel-depends"] == [{"repo-id": "org/k", "version": 1}]
    assert raw["provenance"] == {
        "kernel-builder": {"version": "0.1.0"},
        "kernel": {"commit": COMMIT, "dirty": False},
    }
    assert raw["kernelhub"] == {
        "schema": 1, "framework": "jax", "languages": ["pallas"], "requires": {"jax": ">=0.8"},
        "dependencies": ["a"],
    }  # fmt: skip
    assert parse_metadata(render_metadata(metadata)) == metadata


def test_digests_are_sorted_by_the_bytes_of_their_paths() -> None:
    names = ["é.py", "z.py", "a/b.py", "a.py", "B.py", "\U0001f600.py", "\uffee.py"]
    digest = Digest(algorithm="sha256", files={name: hash_bytes(b"") for name in names})
    written = render_metadata(Metadata(**_attributes(), digest=digest))
    keys = list(json.loads(written)["digest"]["files"])
    assert keys == sorted(names, key=str.encode)
    assert "é.py".encode() in written  # not escaped, as HF's builder writes it


def test_files_that_cannot_be_published_are_not_written() -> None:
    digest = Digest(algorithm="sha256", files={"aux.py": hash_bytes(b"")})
    with pytest.raises(FormatError, match="device on Windows"):
        render_metadata(Metadata(**_attributes(), digest=digest))


def _attributes() -> dict[str, Any]:
    backend = BackendInfo(type="cuda")
    plain = {key.replace("-", "_"): value for key, value in PLAIN.items()}
    return {**plain, "python_depends": (), "backend": backend}


def test_null_is_absent_where_hf_reads_it_so() -> None:
    absent = dict.fromkeys(["kernels_minver", "upstream", "source", "digest", "provenance"])
    assert read(**absent, backend={"type": "cuda", "archs": None}) == read()
    assert read(kernelhub=None).extension is None


def test_unknown_keys_are_ignored() -> None:
    more = read(new=1, backend={"type": "cuda", "new": 1}, kernelhub={"schema": 1, "new": 1})
    assert more == read(kernelhub={"schema": 1})


@pytest.mark.parametrize("version", ["1", 1.0, -1, True, None, 2**64, [1]])
def test_versions_are_integers(version: object) -> None:
    (problem,) = problems(json.dumps(PLAIN | {"version": version}).encode())
    assert problem.at == "version"


def test_keys_are_read_as_they_are_written_only() -> None:
    raw = {key: value for key, value in PLAIN.items() if key != "python-depends"}
    (problem,) = problems(json.dumps(raw | {"python_depends": []}).encode())
    assert (problem.at, problem.code) == ("python-depends", "missing-key")


def test_every_fault_at_once() -> None:
    raw = {
        "name": "My", "id": 1, "version": "1", "kernels-minver": "0.17", "upstream": "",
        "python-depends": None, "kernel-depends": [{"repo-id": "o/k"}, {"repo-id": "o/k", "x": 1}],
        "backend": {"type": "gpu"}, "digest": {"algorithm": "sha256", "files": {"../x": "zz"}},
        "provenance": {"kernel-builder": {"version": "1", "commit": COMMIT}},
        "kernelhub": {"schema": 2, "framework": 7},
    }  # fmt: skip
    found = {problem.at: problem for problem in problems(json.dumps(raw).encode())}
    assert set(found) == {
        "kernelhub.schema", "name", "id", "version", "kernels-minver", "license", "upstream",
        "python-depends", "kernel-depends[0]", "kernel-depends[1].x", "backend.type",
        "digest.files['../x']", "provenance.kernel-builder",
    }  # fmt: skip
    assert all(p.path == "build/torch-cuda/metadata.json" for p in found.values())
    assert all(backend in found["backend.type"].message for backend in BACKENDS)
    assert found["python-depends"].message == "expected a list, found null"


@pytest.mark.parametrize("schema", [0, 2, 10**30, "1", 1.0, True, None])
def test_a_schema_that_is_not_known_is_refused(schema: object) -> None:
    raw = PLAIN | {"kernelhub": {"schema": schema, "framework": "of tomorrow"}}
    (problem,) = problems(json.dumps(raw).encode())
    assert problem.at == "kernelhub.schema"
    newer = type(schema) is int and schema > 1
    assert (problem.hint is not None and "upgrade" in problem.hint) is newer


def test_languages_and_tools_of_tomorrow_are_no_fault() -> None:
    extension = {"schema": 1, "languages": ["cuneiform"], "requires": {"cuneiform": ">=1"}}
    metadata = read(kernelhub=extension)
    assert metadata.extension is not None
    assert metadata.extension.requires == {"cuneiform": ">=1"}


@pytest.mark.parametrize(
    "provenance",
    [
        {},
        {"kernel-builder": {}},
        {"kernel-builder": {"version": 1}},
        {"kernel-builder": {"version": "1", "dirty": True}},
        {"kernel-builder": {"version": "1", "commit": None, "dirty": None}},
        {"kernel-builder": {"version": "1", "commit": "abc", "dirty": True}},
        {"kernel-builder": {"version": "1"}, "kernel": {"commit": COMMIT}},
        {"kernel-builder": {"version": "1"}, "kernel": {"commit": COMMIT, "sha": COMMIT,
                                                        "dirty": True}},
    ],
)  # fmt: skip
def test_provenance_that_is_refused(provenance: object) -> None:
    assert problems(json.dumps(PLAIN | {"provenance": provenance}).encode())


def test_commits_are_read_in_lower_case_and_under_their_older_name() -> None:
    kernel = {"sha": COMMIT.upper(), "dirty": False}
    provenance = read(provenance={"kernel-builder": {"version": "1"}, "kernel": kernel}).provenance
    assert provenance is not None
    assert provenance.kernel is not None
    assert provenance.kernel.commit == COMMIT


_TEXT = json.dumps(PLAIN)


@pytest.mark.parametrize(
    "data",
    [
        b"", b"[]", b"1", b"null", _TEXT.encode("utf-16"), b"\xef\xbb\xbf" + _TEXT.encode(),
        _TEXT.encode() + b"x",
        _TEXT.replace("my-kernel", "\udc80").encode("utf-8", "surrogateescape"),
        _TEXT.replace("Apache-2.0", "\\ud800").encode(),
        (_TEXT[:-1] + ', "x": NaN}').encode(), (_TEXT[:-1] + ', "x": -Infinity}').encode(),
        (_TEXT[:-1] + ', "id": "a"}').encode(), (_TEXT[:-1] + ', "x": {"a": 1, "a": 1}}').encode(),
        (_TEXT[:-1] + ', "x": ' + "1" * 6000 + "}").encode(),
        (_TEXT[:-1] + ', "x": ' + "[" * 200_000 + "]" * 200_000 + "}").encode(), b"[" * 200_000,
        b'{"a":' * 200_000,
    ],
    ids=range(17),
)  # fmt: skip
def test_what_is_no_sound_json_is_a_format_error(data: bytes) -> None:
    assert problems(data)


def test_where_the_json_is_broken() -> None:
    (problem,) = problems(b'{\n  "name": "a",\n  oops\n}')
    assert (problem.line, problem.column) == (3, 3)
    (problem,) = problems(b'{\n  "na\xff": 1}')
    assert (problem.line, problem.column) == (2, 6)


@pytest.mark.parametrize("data", [b"[]", b"1", b"null"])
def test_what_is_no_object(data: bytes) -> None:
    (problem,) = problems(data)
    assert problem.message.startswith("expected an object")


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=5,
)
_CHANGES = st.dictionaries(
    st.sampled_from([*PLAIN, "kernels-minver", "kernel-depends", "upstream", "source", "digest",
                     "provenance", "kernelhub", "x"]),
    _JSON | st.sampled_from([
        {"algorithm": "sha256", "files": {}}, [{"repo-id": "o/k", "version": 1}],
        {"kernel-builder": {"version": "1"}}, {"schema": 1}, {"type": "cpu"}, "https://h/o", 0,
    ]),
    max_size=3,
)  # fmt: skip


@given(_CHANGES)
def test_what_is_read_can_be_written_and_read_again(changes: dict[str, Any]) -> None:
    try:
        metadata = parse_metadata(json.dumps(PLAIN | changes).encode())
    except FormatError:
        return
    written = render_metadata(metadata)
    assert parse_metadata(written) == metadata
    assert render_metadata(parse_metadata(written)) == written
    assert not written.endswith(b"\n")


_NESTED: dict[str, list[Any]] = {
    "name": ["k", "k1", "K1", "", 1], "id": ["", "\ud800", None], "version": [0, True, 2**64, 2.0],
    "kernels-minver": ["0.1.2", " +1 . 2.3", "1.2", None], "upstream": ["https://h/o", "x", None],
    "python-depends": [["einops"], [1], None, "a"],
    "kernel-depends": [
        [{"repo-id": "o/k", "version": 1}], [{"repo-id": "o/k", "revision": "main"}],
        [{"repo-id": "o/k", "version": 1, "revision": None}], [{"repo-id": "o/k"}],
        [{"repo-id": "o/k", "version": 1, "x": 2}], [{"repo-id": "o", "version": 1}],
        [{"version": 1, "revision": "a"}], [{"repo-id": "o/k", "version": None}], None, {},
    ],
    "backend": [{"type": "cuda", "archs": ["9.0"]}, {"type": "cuda", "archs": "9.0"},
                {"type": ["cuda"]}, {"type": "CUDA"}, {}],
    "digest": [{"algorithm": "sha256", "files": {"a.py": hash_bytes(b"")}},
               {"algorithm": "sha512", "files": {"a.py": hash_bytes(b"")}},
               {"algorithm": ["sha256"], "files": {}}, {"algorithm": "md5", "files": {}}],
    "provenance": [
        {"kernel-builder": {"version": "1"}, "kernel": None},
        {"kernel-builder": {"version": "1", "commit": COMMIT.upper(), "dirty": True}},
        {"kernel-builder": {"version": "1", "sha": COMMIT, "dirty": True}},
        {"kernel-builder": {"version": "1", "dirty": True}},
        {"kernel-builder": {"version": "1", "sha": COMMIT, "commit": COMMIT, "dirty": True}},
        {"kernel-builder": {"version": "1"}, "kernel": {"commit": COMMIT, "dirty": 0}},
        {"kernel-builder": {"version": "1"}, "kernel": {"commit": COMMIT, "dirty": False, "x": 1}},
    ],
    "kernelhub": [
        {"schema": 1, "framework": "jax", "languages": ["x"], "requires": {"jax": ">=1"}},
        {"schema": 1, "requires": {"jax": "new"}}, {"schema": 1, "requires": None},
        {"schema": 1, "dependencies": ["a>=1"]}, {"schema": 1, "dependencies": ["a b"]},
        {"schema": True}, {}, {"schema": 1, "framework": "tinygrad"},
    ],
}  # fmt: skip


@given(_CHANGES | st.fixed_dictionaries({}, optional={k: st.sampled_from(v) for k, v in
                                                      _NESTED.items()}))  # fmt: skip
def test_what_is_read_is_what_the_model_allows(changes: dict[str, Any]) -> None:
    """The model, which the schema is made of, has the last word over what every load reads."""
    data = json.dumps(PLAIN | changes).encode()
    try:
        raw = load_json(data, "metadata.json")
    except FormatError:
        return
    plain, found = judge(raw, "metadata.json")
    if plain is None:
        assert problems(data, "metadata.json") == tuple(found)
    else:
        assert metadata_value(parse_metadata(data)) == plain


@given(st.binary(max_size=80))
def test_bytes_are_never_another_error(data: bytes) -> None:
    assert problems(data)
