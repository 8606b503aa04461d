"""The trust policy's format, and editing it without touching more than the one entry."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelhub.errors import FormatError, InputError
from kernelhub.formats.policy import matches, subject_fault
from kernelhub.formats.policy_edit import (
    with_item,
    with_revoked,
    with_signer,
    without_item,
    without_signer,
)
from kernelhub.formats.policy_toml import parse_policy

COMMIT = "715eaa24490779a6961cf24e2a849c25afdc7801"
PEM = "-----BEGIN PUBLIC KEY-----\nMFkw\n-----END PUBLIC KEY-----"
FULL = f"""\
# the platform team's
schema = 1
binding = true
publishers = ["org"]   # ours
repositories = [
    "other/kernel",    # reviewed in May
]
commits = ["third/kernel@{COMMIT}"]
deny = ["org/broken", "bad-org"]
hub-trusted = false
require-signature = ["org"]

[[signers]]
name = "org-2026"
publishers = ["org"]
public-key = '''
{PEM}
'''

# the one before
[[signers]]
name = "org-2025"
publishers = ["org", "*"]
identity = "https://example.org/workflow.yml"
issuer = "https://issuer.example.org"
revoked = true
"""


def refusal(parse: Callable[..., object], *arguments: object) -> FormatError | None:
    """What `parse` raises for faults of a file, None if it reads it."""
    try:
        parse(*arguments)
    except FormatError as error:
        return error
    return None


def test_a_policy() -> None:
    policy = parse_policy(FULL)
    assert policy.binding
    assert policy.allowed == {"org", "other/kernel", f"third/kernel@{COMMIT}"}
    assert policy.denied == {"org/broken", "bad-org"}
    assert (policy.hub_trusted, policy.locks, policy.require_lock) == (False, False, False)
    assert [(s.name, s.kind, s.revoked, s.trust) for s in policy.signers] == [
        ("org-2026", "key", False, True),
        ("org-2025", "sigstore", True, True),
    ]
    assert parse_policy("schema = 1").locks, "where it is not binding, a lock is consent"
    assert parse_policy("schema = 1\nbinding = true\nlocks = true").locks


@pytest.mark.parametrize(
    ("change", "line", "text"),
    [
        (("schema = 1", "schema = 2"), 2, "newer kernelhub"),
        (("schema = 1", "# none"), 1, "this key is missing"),
        (("binding", "bindng"), 3, "did you mean 'binding'"),
        (("true", '"yes"'), 3, "true or false"),
        (('["org"]', '["org/k"]'), 4, "no publisher"),
        (('"other/kernel",', '"other",'), 6, "org/name"),
        ((COMMIT, COMMIT[:7]), 8, "org/name@"),
        (('"bad-org"', '"*"'), 9, "no publisher"),
        (("PUBLIC KEY", "EC PRIVATE KEY"), 16, "private key"),
        (("-----BEGIN", ""), 16, "PEM"),
        (("org-2025", "org-2026"), 24, "two signers"),
        (('issuer = "https://issuer.example.org"\n', ""), 23, "exactly one of"),
        (("revoked = true", "revoked-certificates = ['00']"), 28, "SHA-256"),
    ],
)
def test_what_is_refused(change: tuple[str, str], line: int, text: str) -> None:
    broken = FULL.replace(*change)
    assert broken != FULL
    with pytest.raises(FormatError) as caught:
        parse_policy(broken)
    assert text in str(caught.value)
    assert line in [problem.line for problem in caught.value.problems], str(caught.value)


def test_revoking() -> None:
    text = with_revoked(FULL, "org-2026")
    assert [signer.revoked for signer in parse_policy(text).signers] == [True, True]
    assert text.replace("revoked = true\n", "", 1) == FULL, "nothing else has changed"
    assert with_revoked(text, "org-2026") == text
    assert with_revoked(FULL.replace("revoked = true", "revoked = false"), "org-2025") == FULL
    with pytest.raises(InputError, match="no signer"):
        with_revoked(FULL, "nobody")


def test_who_is_meant() -> None:
    for subjects, meant in (
        (["org"], True),
        (["org/k"], True),
        (["*"], True),
        ([f"org/k@{COMMIT}"], True),
        (["org/k2", "or", "k", f"org/k@{COMMIT[:-1]}0"], False),
    ):
        assert matches(subjects, "org/k", COMMIT) is meant
    assert not matches([f"org/k@{COMMIT}"], "org/k")
    for text in ("", "a b", "a/b/c", "org@" + COMMIT, "org/k@v1", "-x", "org/"):
        assert subject_fault(text), text


def test_editing_keeps_everything_else() -> None:
    more = with_item(FULL, "publishers", "new")
    assert more == FULL.replace('["org"]   # ours', '["new", "org"]   # ours')
    assert without_item(more, "publishers", "new") == FULL
    assert with_item(FULL, "publishers", "org") == FULL
    less = without_item(FULL, "repositories", "other/kernel")
    assert "# reviewed in May" in less
    assert parse_policy(less).allowed == {"org", f"third/kernel@{COMMIT}"}
    less = without_item(FULL, "deny", "bad-org")
    assert parse_policy(less).denied == {"org/broken"}
    fresh = with_item(None, "commits", f"org/k@{COMMIT}")
    assert parse_policy(fresh).allowed == {f"org/k@{COMMIT}"}
    assert with_item("schema = 1\n\n# s\n[[signers]]\n" + FULL.split("[[signers]]\n")[1].rsplit(
        "\n# the one")[0], "deny", "x").startswith('schema = 1\ndeny = ["x"]\n')  # fmt: skip
    with pytest.raises(InputError, match="does not name"):
        without_item(FULL, "deny", "org")


def test_signers_come_and_go() -> None:
    facts = {"name": "n", "publishers": ["o"], "public-key": PEM, "trust": False}
    more = with_signer(FULL, facts)
    assert more.startswith(FULL.rstrip("\n"))
    assert parse_policy(more).signers[-1].public_key.strip() == PEM
    assert without_signer(more, "n") == FULL
    for name in ("org-2025", "org-2026"):
        less = without_signer(more, name)
        assert [s.name for s in parse_policy(less).signers] == [
            s for s in ("org-2026", "org-2025", "n") if s != name
        ]
    with pytest.raises(InputError, match="no signer"):
        without_signer(FULL, "x")
    with pytest.raises(FormatError, match="two signers"):
        with_signer(FULL, facts | {"name": "org-2026"})
    with pytest.raises(FormatError, match="exactly one of"):
        with_signer(FULL, {"name": "x", "publishers": ["o"]})


def test_what_cannot_be_edited_safely_is_left_to_an_editor() -> None:
    odd = 'schema = 1\nsigners = [{name="a", publishers=["o"], identity="i", issuer="j"}]\n'
    assert parse_policy(odd).signers[0].name == "a"
    with pytest.raises(FormatError, match="editor"):
        with_signer(odd, {"name": "b", "publishers": ["o"], "public-key": PEM})


SUBJECTS = st.sampled_from(["org", "a", "b-c", "x.y"])


@given(st.lists(SUBJECTS, unique=True, max_size=4), SUBJECTS, st.sampled_from(["", " ", "\n  "]))
def test_adding_and_removing_undo_each_other(items: list[str], item: str, space: str) -> None:
    listed = f",{space}".join(f'"{i}"' for i in items)
    text = f"schema = 1 # x\npublishers = [{space}{listed}{space}]\n"
    more = with_item(text, "publishers", item)
    assert parse_policy(more).allowed == {*items, item}
    less = without_item(more, "publishers", item)
    assert parse_policy(less).allowed == {*items} - {item}


@given(st.text(max_size=200) | st.binary(max_size=200))
def test_any_text_is_read_or_refused(text: str | bytes) -> None:
    start = b"schema = 1\n" if isinstance(text, bytes) else "schema = 1\n"
    for data in (text, start + text):
        error = refusal(parse_policy, data)
        assert error is None or error.problems
