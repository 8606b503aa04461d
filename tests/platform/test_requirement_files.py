"""Requirements in text files and in pyproject.toml."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelhub.errors import FormatError, InputError
from kernelhub.formats.pyproject_tables import parse_pyproject
from kernelhub.formats.requirements_file import parse_requirements_file
from kernelhub.requirements import collect, project_folder
from kernelhub.settings import current, scope

COMMIT = "715eaa24490779a6961cf24e2a849c25afdc7801"


def refusal(parse: Callable[..., object], *arguments: object) -> FormatError | None:
    """What `parse` raises for faults of a file, None if it reads it."""
    try:
        parse(*arguments)
    except FormatError as error:
        return error
    return None


def test_a_requirements_file() -> None:
    text = f"""\ufeff# kernels
org/a==1
  org/b >= 1, < 3   # why
org/c@{COMMIT}
org/d#not-a-comment-but-no-name-either-1""".rsplit("\n", 1)[0]
    found = parse_requirements_file(
        f"{text}\n\n-r more.txt\n--requirement=x/y.txt\r\norg/e", "r.txt"
    )
    assert [str(item.requirement) for item in found.listed] == [
        "org/a==1",
        "org/b<3,>=1",
        f"org/c@{COMMIT}",
        "org/e",
    ]
    assert [item.origin for item in found.listed] == ["r.txt:2", "r.txt:3", "r.txt:4", "r.txt:8"]
    assert [(i.target, i.line) for i in found.includes] == [("more.txt", 6), ("x/y.txt", 7)]


def test_every_fault_with_line_and_column() -> None:
    text = "org/a==1\n  org/b==one\n-e .\n-r\norg/c>=3,<2\nno-slash # x\n"
    with pytest.raises(FormatError) as caught:
        parse_requirements_file(text, "r.txt")
    assert [(p.line, p.column) for p in caught.value.problems] == [
        (2, 10),
        (3, 1),
        (4, 1),
        (5, 6),
        (6, 1),
    ]
    assert "r.txt:2:10: kernel versions are integers, not 'one'" in str(caught.value)


def test_bytes_that_are_no_text() -> None:
    with pytest.raises(FormatError, match="not UTF-8"):
        parse_requirements_file(b"org/a\n\xff", "r.txt")


def test_both_tables_of_pyproject() -> None:
    text = f"""
[project]
name = "x"
[tool.kernelhub.dependencies]
"org/a" = ">=1,<3"
"org/b" = 2
"org/c" = "*"
"org/d" = "@{COMMIT}"
[tool.kernels.dependencies]
"org/e" = 1
"""
    assert [str(item.requirement) for item in parse_pyproject(text)] == [
        "org/a<3,>=1",
        "org/b==2",
        "org/c",
        f"org/d@{COMMIT}",
        "org/e==1",
    ]
    assert parse_pyproject("[tool.other]\n") == ()


def test_every_fault_of_pyproject() -> None:
    text = """
[tool.kernelhub]
dependencys = 1
[tool.kernelhub.dependencies]
"no-slash" = 1
"org/a" = ">=one"
"org/b" = true
"org/d" = "2"
[tool.kernels.dependencies]
"org/c" = ">=1"
"""
    with pytest.raises(FormatError) as caught:
        parse_pyproject(text)
    assert [p.line for p in caught.value.problems] == [3, 5, 6, 7, 8, 10]
    for text in ("tool = 1", "[tool]\nkernels = 1", "[tool.kernels]\ndependencies = []"):
        with pytest.raises(FormatError, match="expected a table"):
            parse_pyproject(text)


def test_files_that_include_each_other(tmp_path: Path) -> None:
    (tmp_path / "kernel-requirements.txt").write_text("org/a\n-r sub/b.txt\n")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/b.txt").write_text("org/b\n-r ../kernel-requirements.txt\n-r c.txt\n")
    (tmp_path / "sub/c.txt").write_text("org/c==1\n")
    found = collect(tmp_path)
    assert sorted(found.by_repository()) == ["org/a", "org/b", "org/c"]
    assert found.files == ("kernel-requirements.txt", "sub/b.txt", "sub/c.txt")
    (tmp_path / "sub/c.txt").unlink()
    with pytest.raises(InputError, match=r"c\.txt does not exist"):
        collect(tmp_path)


def test_faults_of_all_files_at_once(tmp_path: Path) -> None:
    (tmp_path / "kernel-requirements.txt").write_text("-r b.txt\n-r c.txt\n")
    (tmp_path / "b.txt").write_text("nope\n")
    (tmp_path / "c.txt").write_text("nope either\n")
    (tmp_path / "pyproject.toml").write_text('[tool.kernelhub.dependencies]\n"x" = 1\n')
    with pytest.raises(FormatError) as caught:
        collect(tmp_path)
    assert {p.path for p in caught.value.problems} == {
        "b.txt",
        "c.txt",
        "pyproject.toml",
    }


def test_the_project_is_found_upward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "a/pyproject.toml").write_text("[project]\n")  # asks for no kernels
    (tmp_path / "pyproject.toml").write_text('[tool.kernels.dependencies]\n"org/k" = 1\n')
    monkeypatch.chdir(inner)
    assert project_folder(current()) == tmp_path
    with scope(project=inner):
        assert project_folder(current()) == inner


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    for parse in (parse_requirements_file, parse_pyproject):
        error = refusal(parse, text, "x")
        assert error is None or {problem.path for problem in error.problems} == {"x"}


LINES = st.sampled_from(
    ["org/a==1", "org/b", "# x", "", "org/c>=1 # y", f"org/d@{COMMIT}", "-r z.txt", "org/bad==x"]
)


@given(st.lists(LINES, max_size=8), st.sampled_from(["\n", "\r\n"]))
def test_lines_count_the_same_wherever_they_stand(lines: list[str], end: str) -> None:
    bad = [number for number, line in enumerate(lines, 1) if line == "org/bad==x"]
    good = [n for n, line in enumerate(lines, 1) if line[:3] == "org" and line != "org/bad==x"]
    text = end.join(lines)
    error = refusal(parse_requirements_file, text, "x")
    assert [problem.line for problem in (error.problems if error else ())] == bad
    if not bad:
        found = parse_requirements_file(text, "x")
        assert [item.line for item in found.listed] == good
