"""Names that cross the border."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelhub.errors import FormatError
from kernelhub.formats.names import (
    check_relative,
    name_fault,
    path_fault,
    python_name,
    repo_id_fault,
    revision_fault,
)
from kernelhub.formats.variant import BACKENDS, FRAMEWORKS, VariantName


@pytest.mark.parametrize(
    ("name", "package"), [("flash-attn", "flash_attn"), ("k2", "k2"), ("a--b", "a__b")]
)
def test_python_name_of_a_kernel(name: str, package: str) -> None:
    assert python_name(name) == package


@pytest.mark.parametrize(
    "name",
    [
        "",
        "a",
        "A",
        "Flash",
        "a_b",
        "1a",
        "-a",
        "a-",
        "ab\n",
        "é1",
        "a b",
        "class",
        "json",
        "torch",
        "con",
        "nul",
        "com1",
    ],
)
def test_names_that_no_kernel_may_have(name: str) -> None:
    assert name_fault(name)
    with pytest.raises(FormatError) as caught:
        python_name(name)
    assert repr(name) in str(caught.value)


@pytest.mark.parametrize(
    "path",
    [
        "__init__.py", "sub/a.py", ".hidden", "a.b.c", "unicode_é.py", "console.py", "com10.txt",
        "tuning/attention_fwd.nvidia-h200.json", "a b.txt", "...a",
    ],
)  # fmt: skip
def test_paths_that_are_taken(path: str) -> None:
    assert check_relative(path) == path


@pytest.mark.parametrize(
    "path",
    [
        "", "/etc/passwd", "..", "a/../b", "../a", ".", "./a", "a//b", "a/", "a\\b", "C:/x", "c:x",
        "a:stream", "a\nb", "a\0b", "\x7f", "aux", "AUX.py", "sub/Con.txt", "nul .txt", "LPT1",
        "com¹",
        "a.", "a ", "a./b", "a?b", "a*b", 'a"b', "a<b", "a|b", "\udce9.py", "a" * 256, "é" * 128,
    ],
)  # fmt: skip
def test_paths_that_are_refused(path: str) -> None:
    assert path_fault(path)
    with pytest.raises(FormatError):
        check_relative(path)


@given(st.text(st.characters(exclude_categories=[]), max_size=12))
def test_a_path_that_is_taken_stays_below_its_folder(path: str) -> None:
    if path_fault(path) is None:
        parts = path.split("/")
        assert all(part not in ("", ".", "..") for part in parts)
        path.encode("utf-8")


@pytest.mark.parametrize("repo_id", ["org/k", "Org-1/my_kernel.v2", "a/b"])
def test_repositories_that_are_taken(repo_id: str) -> None:
    assert repo_id_fault(repo_id) is None


@pytest.mark.parametrize(
    "repo_id",
    ["k", "", "/k", "org/", "a/b/c", "org/k ", "org/../k", "org/a--b", "org/k.", "-o/k",
     "org/k.git", "org/k\n", "org/é", "o/" + "k" * 97, "."],
)  # fmt: skip
def test_repositories_that_are_refused(repo_id: str) -> None:
    assert repo_id_fault(repo_id)


@pytest.mark.parametrize("revision", ["main", "v1", "refs/pr/1", "0" * 40, "feature/a.b"])
def test_revisions_that_are_taken(revision: str) -> None:
    assert revision_fault(revision) is None


@pytest.mark.parametrize(
    "revision",
    ["", " ", "a b", "a..b", "-x", "/a", "a/", "a.lock", "a~1", "a^", "a:b", "@", "a@{1}", "a//b",
     ".a", "a/.b", "a\nb", "\ud800", "x" * 256],
)  # fmt: skip
def test_revisions_that_are_refused(revision: str) -> None:
    assert revision_fault(revision)


@given(st.sampled_from(FRAMEWORKS), st.sampled_from([*BACKENDS, "universal", "npu"]))
def test_variant_names_round_trip(framework: str, backend: str) -> None:
    variant = VariantName.parse(f"{framework}-{backend}")
    assert variant is not None
    assert (variant.framework, variant.backend) == (framework, backend)
    assert str(variant) == f"{framework}-{backend}"


@pytest.mark.parametrize(
    "folder", ["", "torch", "torch-", "torch-cuda.bak", "torch-foo-bar", "tensorflow-cuda",
               "torch29-cxx11-cu128-x86_64-linux", "Torch-cuda", "torch-CUDA"]
)  # fmt: skip
def test_other_folders_are_no_variants(folder: str) -> None:
    assert VariantName.parse(folder) is None


@pytest.mark.parametrize(
    ("folder", "backend", "serves"),
    [
        ("torch-cuda", "cuda", True),
        ("torch-cuda", "cpu", False),
        ("torch-universal", "metal", True),
        ("torch-npu", "cann", True),
        ("torch-cann", "cann", True),
        ("torch-npu", "cpu", False),
    ],
)
def test_which_backend_a_variant_serves(folder: str, backend: str, serves: bool) -> None:
    variant = VariantName.parse(folder)
    assert variant is not None
    assert variant.serves(backend) is serves
