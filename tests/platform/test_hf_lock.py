"""HF's lock files, both formats."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelhub.errors import FormatError
from kernelhub.formats.hf_lock import (
    HfLocked,
    git_lfs_concat,
    parse_hf_lock,
    render_hf_lock,
    render_old_hf_lock,
)

COMMIT = "715eaa24490779a6961cf24e2a849c25afdc7801"


def refusal(parse: Callable[..., object], *arguments: object) -> FormatError | None:
    """What `parse` raises for faults of a file, None if it reads it."""
    try:
        parse(*arguments)
    except FormatError as error:
        return error
    return None


def test_the_new_format() -> None:
    value = [
        {"dependency": {"repo-id": "org/x", "revision": COMMIT}, "lock": {"commit": COMMIT}},
        {"dependency": {"repo-id": "org/k", "version": 10}, "lock": {"commit": COMMIT}},
        {
            "dependency": {"repo-id": "org/k", "version": 2},
            "lock": {"commit": COMMIT.upper(), "hash": "sha256-x"},
        },
    ]
    found = parse_hf_lock(json.dumps(value).encode())
    assert [(k.repo_id, k.version, k.revision, k.commit) for k in found] == [
        ("org/k", 2, None, COMMIT),
        ("org/k", 10, None, COMMIT),
        ("org/x", None, COMMIT, COMMIT),
    ]
    assert render_hf_lock(found) == (
        f"""[
  {{
    "dependency": {{
      "repo-id": "org/k",
      "version": 2
    }},
    "lock": {{
      "commit": "{COMMIT}"
    }}
  }},
  {{
    "dependency": {{
      "repo-id": "org/k",
      "version": 10
    }},
    "lock": {{
      "commit": "{COMMIT}"
    }}
  }},
  {{
    "dependency": {{
      "repo-id": "org/x",
      "revision": "{COMMIT}"
    }},
    "lock": {{
      "commit": "{COMMIT}"
    }}
  }}
]""".encode()
    )


def test_hf_reads_what_is_written_and_writes_the_same() -> None:
    peer = pytest.importorskip("kernels._rust", reason="HF's client is not installed")
    entries = [
        HfLocked(repo_id="org/x", revision="main", commit=COMMIT),
        HfLocked(repo_id="org/k", version=10, commit=COMMIT),
        HfLocked(repo_id="org/k", version=2, commit=COMMIT),
    ]
    text = render_hf_lock(entries).decode()
    assert peer.KernelLocks.from_json(text).to_json() == text


def test_the_old_format() -> None:
    text = (
        f'[{{"repo_id": "org/k", "sha": "{COMMIT}", "variants": {{"torch-cpu":'
        ' {"hash": "sha256-ab", "hash_type": "git_lfs_concat"}}}]'
    )
    (found,) = parse_hf_lock(text.encode())
    assert found == HfLocked(repo_id="org/k", commit=COMMIT, hashes={"torch-cpu": "sha256-ab"})
    assert json.loads(render_old_hf_lock([found])) == json.loads(text)


def blob(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def test_the_old_hash() -> None:
    files = {"__init__.py": blob(b"hello world"), "data/cfg.json": blob(b"{}\n")}
    expected = "sha256-c8bc51327f2df9b1425b358f3202d5edfabf956e9f09e25ea03429bf6864d7e0"
    assert git_lfs_concat(files) == expected
    assert git_lfs_concat({**files, "a/__pycache__/x.pyc": "00", "b.pyc": "00"}) == expected
    files["table.bin"] = hashlib.sha256(b"\0bin").hexdigest()
    assert git_lfs_concat(files) == (
        "sha256-3b020fe889a1a7b8bffa09ca16d8b016e2b319bb264d33f53ad0893e638ec05f"
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({}, "expected a list"),
        ([1], "expected a table"),
        ([{"dependency": {"repo-id": "org/k", "version": 1}}], "[0].lock: this key is missing"),
        (
            [{"dependency": {"repo-id": "org/k"}, "lock": {"commit": COMMIT}}],
            "exactly one of 'version' and 'revision'",
        ),
        (
            [{"dependency": {"repo-id": "org/k", "version": 1}, "lock": {"commit": "abc"}}],
            "[0].lock.commit: expected a git commit",
        ),
        (
            [
                {
                    "dependency": {"repo-id": "org/k", "version": 1},
                    "lock": {"commit": COMMIT},
                    "x": 1,
                }
            ],
            "[0].x: unknown key",
        ),
        (
            [{"dependency": {"repo-id": "org/k", "version": 1}, "lock": {"commit": COMMIT}}] * 2,
            "org/k is listed twice",
        ),
        ([{"repo_id": "org/k", "sha": 1, "variants": {}}], "[0].sha: expected a string"),
    ],
)
def test_what_is_refused(value: object, text: str) -> None:
    with pytest.raises(FormatError) as caught:
        parse_hf_lock(json.dumps(value).encode())
    assert text in str(caught.value)


def test_all_faults_at_once() -> None:
    value = [{"repo_id": "nope", "sha": COMMIT}, {"repo_id": "org/k", "sha": "x"}]
    with pytest.raises(FormatError) as caught:
        parse_hf_lock(json.dumps(value).encode())
    assert [problem.at for problem in caught.value.problems] == ["[0].repo_id", "[1].sha"]


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    error = refusal(parse_hf_lock, data)
    assert error is None or error.problems


ENTRIES = st.builds(
    lambda name, version, revision: HfLocked(
        repo_id=f"org/{name}",
        version=version,
        revision=None if version is not None else revision,
        commit=COMMIT,
    ),
    st.sampled_from(["a", "b"]),
    st.none() | st.integers(0, 2**64 - 1),
    st.sampled_from(["main", COMMIT]),
)


@given(st.lists(ENTRIES, max_size=5, unique_by=lambda e: (e.repo_id, e.version, e.revision)))
def test_round_trip(entries: list[HfLocked]) -> None:
    assert set(map(repr, parse_hf_lock(render_hf_lock(entries)))) == set(map(repr, entries))
