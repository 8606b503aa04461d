"""build.toml, through its parser."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelhub.errors import FormatError, Problem
from kernelhub.formats.build_toml import BuildFile, parse_build_toml
from kernelhub.formats.variant import BACKENDS

HEAD = """\
[general]
name = "my-kernel"
version = 2
edition = 5
license = "Apache-2.0"
backends = ["cuda", "rocm"]
"""
MINIMAL = HEAD + "\n[torch-noarch]\n"

FULL = """\
#:schema ./.kernel-builder/build.toml.schema.json
[general]
name = "my-kernel"
version = 0
edition = 5
license = "MIT"
backends = ["cuda", "tpu", "cuda"]
upstream = "https://example.org/org/repo.git"
source = "git@example.org:org/repo.git"
python-depends = ["einops"]
kernel-depends = [{ repo-id = "org/dep", version = 2 }, { repo-id = "org/x", revision = "main" }]
dependencies = ["numpy>=1.26; python_version < '3.14'", "tqdm"]

[general.requires]
python = ">=3.10"
triton = ">=3.6,<4"

[general.hub]
repo-id = "org/my-kernel"
branch = "release"

[general.cuda]
minver = "12.8"
maxver = "13.0"
python-depends = ["nvidia-cutlass-dsl"]
kernel-depends = [{ repo-id = "org/y", version = 1 }]

[general.tpu]
python-depends = ["something"]

[torch-noarch]
pyext = ["py", "json"]
cuda_capabilities = ["9.0", "10.0"]
rocm-archs = ["gfx942"]
backends = ["cuda"]

[jax-noarch]
backends = ["tpu", "tpu"]

[tuning]
workloads = "tuning/workloads.py"
"""


def problems(text: str | bytes) -> tuple[Problem, ...]:
    with pytest.raises(FormatError) as caught:
        parse_build_toml(text)
    return caught.value.problems


def only(text: str | bytes) -> Problem:
    (problem,) = problems(text)
    return problem


def test_a_minimal_file() -> None:
    build = parse_build_toml(MINIMAL)
    assert build == BuildFile(
        name="my-kernel",
        python_name="my_kernel",
        version=2,
        license="Apache-2.0",
        backends=("cuda", "rocm"),
        branch="v2",
        frameworks=build.frameworks,
    )
    assert set(build.frameworks) == {"torch"}
    torch = build.frameworks["torch"]
    assert torch.pyext == ("py", "pyi")
    assert torch.backends == ("cuda", "rocm")
    assert torch.cuda_capabilities is None


def test_every_key() -> None:
    build = parse_build_toml(FULL)
    assert build.version == 0
    assert build.backends == ("cuda", "tpu")
    assert build.upstream == "https://example.org/org/repo.git"
    assert build.source == "git@example.org:org/repo.git"
    assert build.python_depends_for("cuda") == ("einops", "nvidia-cutlass-dsl")
    assert build.python_depends_for("rocm") == ("einops",)
    cuda = [(d.repo_id, d.version, d.revision) for d in build.kernel_depends_for("cuda")]
    assert cuda == [("org/dep", 2, None), ("org/x", None, "main"), ("org/y", 1, None)]
    assert len(build.kernel_depends_for("tpu")) == 2
    assert build.dependencies == ("numpy>=1.26; python_version < '3.14'", "tqdm")
    assert build.requires == {"python": ">=3.10", "triton": ">=3.6,<4"}
    assert (build.hub_repo_id, build.branch) == ("org/my-kernel", "release")
    assert (build.cuda_minver, build.cuda_maxver) == ("12.8", "13.0")
    torch, jax = build.frameworks["torch"], build.frameworks["jax"]
    assert torch.pyext == ("py", "json")
    assert torch.cuda_capabilities == ("9.0", "10.0")
    assert torch.rocm_archs == ("gfx942",)
    assert torch.backends == ("cuda",)
    assert jax.backends == ("tpu",)
    assert (jax.cuda_capabilities, jax.rocm_archs) == (None, None)
    assert build.workloads == "tuning/workloads.py"


@pytest.mark.parametrize("key", ["cuda_capabilities", "cuda-capabilities"])
def test_both_spellings_are_read(key: str) -> None:
    build = parse_build_toml(f'{MINIMAL}{key} = ["9.0"]\n')
    assert build.frameworks["torch"].cuda_capabilities == ("9.0",)


def test_both_spellings_at_once_are_a_fault() -> None:
    text = MINIMAL + 'rocm_archs = ["gfx942"]\nrocm-archs = ["gfx942"]\n'
    problem = only(text)
    assert problem.at == "torch-noarch.rocm-archs"
    assert (problem.line, problem.code) == (10, "given-twice")


def test_every_fault_at_once() -> None:
    text = """\
[general]
name = "My_Kernel"
version = "1"
edition = 5
licence = "MIT"
backends = ["cuda", "rcom", "gpu"]
upstream = "example.org:org/repo"
dependencies = ["einops >>1"]
kernel-depends = [
  { repo-id = "org/x", version = 1, revision = "main" },
  { repo-id = "x", version = -1 },
]

[general.requires]
torch = ">=2.x"
pytorch = ">=2"

[general.cuda]
minver = 12.8

[torch-noarch]
pyext = "py"

[jax-noarch]
backends = ["tpu"]

[tuning]
workloads = "../workloads.py"
"""
    found = {(p.at, p.line): p for p in problems(text)}
    assert set(found) == {
        ("general.license", 1),
        ("general.name", 2),
        ("general.version", 3),
        ("general.licence", 5),
        ("general.backends[1]", 6),
        ("general.backends[2]", 6),
        ("general.upstream", 7),
        ("general.dependencies[0]", 8),
        ("general.kernel-depends[0]", 10),
        ("general.kernel-depends[1].repo-id", 11),
        ("general.kernel-depends[1].version", 11),
        ("general.requires.torch", 15),
        ("general.requires.pytorch", 16),
        ("general.cuda.minver", 19),
        ("torch-noarch.pyext", 22),
        ("jax-noarch.backends[0]", 25),
        ("tuning.workloads", 28),
    }
    assert found["general.version", 3].message == "expected an integer, found '1'"
    assert found["general.licence", 5].hint == "did you mean 'license'?"
    assert found["general.backends[1]", 6].hint == "did you mean 'rocm'?"
    assert found["general.backends[1]", 6].column == 21
    for backend in BACKENDS:
        assert backend in found["general.backends[2]", 6].message
    assert found["general.requires.pytorch", 16].hint == "did you mean 'torch'?"
    assert found["general.license", 1].hint == 'for example license = "Apache-2.0"'
    assert "expected a list" in found["torch-noarch.pyext", 22].message
    assert all(p.path == "build.toml" and p.code for p in found.values())


@pytest.mark.parametrize(
    ("line", "table"),
    [
        ("src = []", "torch"),
        ("src = []", "tvm-ffi"),
        ("", "torch"),
        ('backend = "cuda"', "kernel.a"),
    ],
)
def test_compiled_kernels_are_not_packed(line: str, table: str) -> None:
    problem = only(f"{HEAD}\n[{table}]\n{line}\n")
    assert "packs noarch kernels" in problem.message
    assert problem.line == 8
    assert problem.code == "not-noarch"


def test_an_empty_kernel_table_says_nothing() -> None:
    assert parse_build_toml(MINIMAL + "[kernel]\n") == parse_build_toml(MINIMAL)


def test_no_framework() -> None:
    problem = only(HEAD)
    assert problem.message == "no framework table"
    assert problem.hint is not None
    assert "[jax-noarch]" in problem.hint


def test_one_framework_given_twice() -> None:
    problem = only(MINIMAL + "[torch-noarch]\n")
    assert (problem.line, problem.code) == (9, "toml-syntax")
    assert problem.message == "cannot declare torch-noarch twice"


@pytest.mark.parametrize(
    ("edition", "hint"),
    [
        ("", "run `kernel-builder migrate`"),
        ("edition = 4", "run `kernel-builder migrate`"),
        ("edition = 3", "run `kernel-builder migrate`"),
        ("edition = 2", "`kernel-builder migrate` reads editions 3 and 4 only"),
        ("edition = 1", "`kernel-builder migrate` reads editions 3 and 4 only"),
        ("edition = 6", "pip install --upgrade kernelhub"),
    ],
)
def test_other_editions_name_the_remedy(edition: str, hint: str) -> None:
    problem = only(MINIMAL.replace("edition = 5", edition))
    assert problem.at == "general.edition"
    assert problem.hint is not None
    assert hint in problem.hint
    assert problem.line == (4 if edition else 1)


def test_an_older_file_is_not_measured_by_the_new_edition() -> None:
    text = '[general]\nname = "k2"\nbackends = ["cuda"]\n[torch]\nuniversal = true\n'
    assert only(text).at == "general.edition"


def test_a_file_that_only_lacks_its_edition_is_checked_whole() -> None:
    text = MINIMAL.replace("edition = 5\n", "").replace("version", "verson")
    assert [p.at for p in problems(text)] == [
        "general.edition",
        "general.version",
        "general.verson",
    ]


@pytest.mark.parametrize("edition", ['"5"', "5.0", "true", "[5]"])
def test_an_edition_of_another_type(edition: str) -> None:
    problem = only(MINIMAL.replace("edition = 5", f"edition = {edition}"))
    assert problem.at == "general.edition"
    assert "expected an integer" in problem.message


@pytest.mark.parametrize("text", ["", "general = 1", "[[general]]\n", "[general]", "a = 1"])
def test_hardly_any_file(text: str) -> None:
    assert problems(text)


def test_bytes_that_are_not_utf8() -> None:
    problem = only(MINIMAL.encode().replace(b"Apache", b"Ap\xe4che"))
    assert (problem.line, problem.column, problem.code) == (5, 14, "not-utf8")


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_line_ends_and_byte_order_mark(newline: str) -> None:
    data = b"\xef\xbb\xbf" + MINIMAL.replace("\n", newline).encode()
    assert parse_build_toml(data) == parse_build_toml(MINIMAL)


def test_the_examples_of_the_repository() -> None:
    files = sorted((Path(__file__).parents[2] / "examples").glob("*/build.toml"))
    assert files
    for file in files:
        assert parse_build_toml(file.read_bytes()).name == file.parent.name


_SCALAR = st.sampled_from(
    ["1", "-1", "1.5", "true", '""', '"cuda"', '"org/k"', "[]", '["cuda"]', "[1]", "{}", '">=1"',
     "1979-05-27", '[{ repo-id = "a/b" }]', '"\\u0000"', "99999999999999999999"]
)  # fmt: skip
_KEY = st.sampled_from(
    ["name", "version", "edition", "license", "backends", "upstream", "kernel-depends", "hub",
     "cuda", "requires", "dependencies", "pyext", "rocm_archs", "rocm-archs", "workloads", "x"]
)  # fmt: skip
_TABLE = st.sampled_from(
    ["general", "general.hub", "general.cuda", "general.requires", "torch-noarch", "jax-noarch",
     "tuning", "torch", "kernel", "x"]
)  # fmt: skip


@given(st.dictionaries(_TABLE, st.dictionaries(_KEY, _SCALAR, max_size=5), max_size=5))
def test_tables_of_any_content_parse_or_are_refused_in_one_way(
    tables: dict[str, dict[str, str]],
) -> None:
    text = "".join(
        f"[{table}]\n" + "".join(f"{key} = {value}\n" for key, value in pairs.items())
        for table, pairs in tables.items()
    )
    try:
        parse_build_toml(text)
        found: tuple[Problem, ...] = ()
    except FormatError as error:
        found = error.problems
    assert all(problem.line for problem in found)


@given(st.binary(max_size=80) | st.text(max_size=80))
def test_anything_else_is_a_format_error(data: bytes | str) -> None:
    with pytest.raises(FormatError):
        parse_build_toml(data)
