"""Kernel requirements."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelhub.errors import RequirementError
from kernelhub.formats.requirement import parse_requirement, pinned

COMMIT = "715eaa24490779a6961cf24e2a849c25afdc7801"


@pytest.mark.parametrize(
    ("text", "admitted"),
    [
        ("org/k", {0, 1, 2, 3, 4}),
        ("org/k==1", {1}),
        ("org/k>=1,<3", {1, 2}),
        ("  org/k >= 1 , < 3\t", {1, 2}),
        ("org/k!=2,>0", {1, 3, 4}),
        ("org/k<=0", {0}),
        ("org/k>3", {4}),
    ],
)
def test_versions_that_a_requirement_admits(text: str, admitted: set[int]) -> None:
    requirement = parse_requirement(text)
    assert requirement.repo_id == "org/k"
    assert requirement.revision is None
    assert {version for version in range(5) if requirement.admits(version)} == admitted


@pytest.mark.parametrize(
    ("text", "revision", "pinned"),
    [
        (f"org/k@{COMMIT}", COMMIT, True),
        ("org/k@main", "main", False),
        (" org/k @ refs/pr/1 ", "refs/pr/1", False),
        (f"org/k@{COMMIT[:12]}", COMMIT[:12], False),
    ],
)
def test_a_revision(text: str, revision: str, pinned: bool) -> None:
    requirement = parse_requirement(text)
    assert requirement.revision == revision
    assert requirement.specifier is None
    assert requirement.is_pinned is pinned
    assert not requirement.admits(1)


@pytest.mark.parametrize(
    ("text", "column", "reason"),
    [
        ("", 1, "expected a repository"),
        ("==1", 1, "expected a repository"),
        ("k==1", 1, "org/name"),
        ("  a/b/c", 3, "org/name"),
        ("org/k==1.5", 8, "integers"),
        ("org/k==1.*", 8, "integers"),
        ("org/k==v1", 8, "integers"),
        ("org/k==-1", 8, "integers"),
        ("org/k==", 8, "a version is missing"),
        ("org/k>=1,", 10, "expected one of"),
        ("org/k>=1;<3", 8, "integers, not '1;'"),
        ("org/k~=1", 6, "cannot be compared by '~='"),
        ("org/k===1", 6, "cannot be compared by '==='"),
        ("org/k=1", 6, "expected one of"),
        ("org/k 1", 7, "expected one of"),
        ("org/k@", 7, "must follow '@'"),
        ("org/k@a b", 7, "no name of a branch"),
        ("org/k==1@main", 9, "expected ','"),
        ("org/k>3,<4", 6, "no version can satisfy"),
        ("org/k==" + "9" * 30, 8, "integers"),
    ],
)
def test_faults_name_their_column_and_the_remedy(text: str, column: int, reason: str) -> None:
    with pytest.raises(RequirementError, match=reason) as caught:
        parse_requirement(text)
    assert caught.value.column == column
    assert caught.value.hint is not None
    assert "org/name>=1,<3" in caught.value.hint


@given(
    st.lists(
        st.tuples(st.sampled_from(["==", "!=", ">=", "<=", ">", "<"]), st.integers(0, 9)),
        max_size=3,
    )
)
def test_what_is_written_parses_to_the_same(clauses: list[tuple[str, int]]) -> None:
    text = "org/k" + ",".join(f"{operator}{version}" for operator, version in clauses)
    admitted = [
        v for v in range(12) if all(_holds(v, operator, bound) for operator, bound in clauses)
    ]
    if not admitted:
        with pytest.raises(RequirementError, match="no version can satisfy"):
            parse_requirement(text)
        return
    requirement = parse_requirement(text)
    assert [v for v in range(12) if requirement.admits(v)] == admitted
    assert parse_requirement(str(requirement)) == requirement


def _holds(version: int, operator: str, bound: int) -> bool:
    return {
        "==": version == bound,
        "!=": version != bound,
        ">=": version >= bound,
        "<=": version <= bound,
        ">": version > bound,
        "<": version < bound,
    }[operator]


@given(st.text(st.characters(exclude_categories=[]), max_size=30) | st.from_regex(
    r"[a-z/ ]{0,6}[=<>!~@,. 0-9a-z]{0,12}", fullmatch=True
))  # fmt: skip
def test_any_text_parses_or_is_refused_in_one_way(text: str) -> None:
    try:
        requirement = parse_requirement(text)
        column = 1
    except RequirementError as error:
        requirement, column = None, error.column
    assert 1 <= column <= len(text) + 1
    assert requirement is None or parse_requirement(str(requirement)) == requirement


@given(st.text(max_size=12) | st.from_regex(r"[-=<>!~@,. 0-9a-z/]{0,12}", fullmatch=True))
def test_a_pin_never_names_another_repository(pin: str) -> None:
    try:
        requirement = pinned("org/k", pin)
    except RequirementError:
        return
    assert requirement.repo_id == "org/k"
    assert (requirement.specifier is None) != (requirement.revision is None)
