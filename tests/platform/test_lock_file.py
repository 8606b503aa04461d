"""The lock file's format: round trips, comments, and what is refused."""

from __future__ import annotations

import string
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelhub.errors import FormatError
from kernelhub.formats.content import content_digest
from kernelhub.formats.digest import Digest, hash_bytes
from kernelhub.formats.lock import Lock, LockedKernel, parse_lock, sort_key
from kernelhub.formats.lock_model import judge
from kernelhub.formats.lock_text import render_lock
from kernelhub.formats.requirement import parse_requirement

A, B = "a" * 40, "b" * 40
DIGEST = "sha256:" + "0" * 64


def refusal(parse: Callable[..., object], *arguments: object) -> FormatError | None:
    """What `parse` raises for faults of a file, None if it reads it."""
    try:
        parse(*arguments)
    except FormatError as error:
        return error
    return None


def kernel(repo_id: str = "org/k", commit: str = A, **facts: object) -> LockedKernel:
    values = {"requirement": parse_requirement(f"{repo_id}>=1"), "version": 1}
    values |= {"variants": {"torch-cpu": DIGEST}} | facts
    return LockedKernel(repo_id=repo_id, commit=commit, **values)


def test_the_text_of_a_lock() -> None:
    lock = Lock(
        kernels=(
            kernel("org/z", requirement=None, version=None, dependencies=("org/k==1",)),
            kernel(variants={"torch-cuda": DIGEST, "torch-cpu": DIGEST}),
        )
    )
    assert (
        render_lock(lock)
        == f"""\
# Written by `kernelhub lock`. Commit this file; comments in it are kept.
schema = 1

[[kernel]]
repo-id = "org/k"
requirement = ">=1"
version = 1
commit = "{A}"

[kernel.variants]
torch-cpu = "{DIGEST}"
torch-cuda = "{DIGEST}"

[[kernel]]
repo-id = "org/z"
commit = "{A}"
dependencies = ["org/k==1"]

[kernel.variants]
torch-cpu = "{DIGEST}"
"""
    )


def test_comments_stay_where_they_belong() -> None:
    text = render_lock(Lock(kernels=(kernel("org/a"), kernel("org/b"))))
    lines = text.split("\n")
    lines.insert(3, "# of a: a hash # in it")
    lines[lines.index('requirement = ">=1"')] += ' # "why"'
    variants = lines.index("[kernel.variants]")
    lines.insert(variants, "  # of the variants of a")
    lines[variants + 2] += "   # measured"
    commented = "\n".join([*lines, "# the end"])
    upgraded = Lock(kernels=(kernel("org/a", B, version=2), kernel("org/c"), kernel("org/b")))
    after = render_lock(upgraded, commented)
    assert parse_lock(after) == Lock(kernels=tuple(sorted(upgraded.kernels, key=sort_key)))
    a = after[: after.index("org/b")]
    assert "# of a: a hash # in it\n[[kernel]]" in a
    assert 'requirement = ">=1"  # "why"' in a
    assert "# of the variants of a\n[kernel.variants]" in a
    assert f'torch-cpu = "{DIGEST}"  # measured' in a
    assert after.endswith("# the end\n")
    assert render_lock(upgraded, after) == after


def test_a_small_change_is_a_small_difference() -> None:
    kernels = [kernel(f"org/k{n}") for n in range(9)]
    before = render_lock(Lock(kernels=tuple(kernels)))
    kernels[4] = kernel("org/k4", B, version=2)
    after = render_lock(Lock(kernels=tuple(kernels)), before)
    changed = set(before.split("\n")) ^ set(after.split("\n"))
    assert changed == {"version = 2", f'commit = "{B}"'}


def test_comments_inside_a_list_are_kept() -> None:
    text = f"""schema = 1
[[kernel]]
repo-id = "org/k"
commit = "{A}"
dependencies = [
  # needed by the backward pass
  "org/z==1", # pinned
]
[kernel.variants]
"""
    after = render_lock(parse_lock(text), text)
    assert "# needed by the backward pass" in after
    assert "# pinned" in after
    assert parse_lock(after) == parse_lock(text)


@pytest.mark.parametrize(
    ("change", "line", "text"),
    [
        (("schema = 1", "schema = 2"), 1, "newer kernelhub"),
        (("schema = 1", "schema = 0"), 1, "expected the schema number 1"),
        (("schema = 1", "# none"), 1, "schema number is missing"),
        (("version = 1", '<<<<<<< HEAD\nversion = 1\n=======\nversion = 2\n>>>>>>> x'), 5,
         "conflict marker"),
        (("version = 1", 'version = "1"'), 5, "expected an integer"),
        (("version = 1", "version = -1"), 5, "expected 0 or more"),
        ((A, A[:12]), 6, "expected a git commit"),
        ((DIGEST, DIGEST[:20]), 8, "expected sha256:"),
        ((">=1", ">=one"), 4, "kernel versions are integers"),
        ((">=1", "2"), 4, "expected one of"),
        ((">=1", ""), 4, "expected one of"),
        (("torch-cpu", '"../x"'), 8, "'..'"),
        (("org/k", "nope"), 3, "org/name"),
        (("version = 1", "version = 1\nversion = 1"), 6, "overwrite"),
    ],
)  # fmt: skip
def test_what_is_refused(change: tuple[str, str], line: int, text: str) -> None:
    lock = render_lock(Lock(kernels=(kernel(),))).split("\n", 1)[1].replace("\n\n", "\n")
    broken = lock.replace(*change, 1)
    assert broken != lock
    with pytest.raises(FormatError) as caught:
        parse_lock(broken)
    assert text in str(caught.value)
    assert caught.value.problems[0].line == line
    assert caught.value.hint or caught.value.problems[0].hint


def test_one_kernel_twice() -> None:
    text = render_lock(Lock(kernels=(kernel(), kernel())))
    with pytest.raises(FormatError, match="listed twice at commit"):
        parse_lock(text)
    text = render_lock(Lock(kernels=(kernel(), kernel(commit=B))))
    with pytest.raises(FormatError, match="listed twice with a requirement"):
        parse_lock(text)


def test_keys_of_a_later_release_are_passed_over() -> None:
    text = render_lock(Lock(kernels=(kernel(),))).replace("version = 1", "version = 1\nnew = 2")
    assert parse_lock(text) == Lock(kernels=(kernel(),))


def test_what_a_requirement_stands_for() -> None:
    direct = kernel(version=2, requirement=parse_requirement("org/k"))
    older = kernel(commit=B, version=1, requirement=None)
    branch = kernel(commit="c" * 40, version=None, requirement=parse_requirement("org/k@main"))
    lock = Lock(kernels=(older, direct))
    for text, expected in (
        ("org/k", direct),
        ("org/k>=1", direct),
        ("org/k==1", older),
        ("org/k==3", None),
        (f"org/k@{B}", older),
        ("org/k@main", None),
        ("org/other", None),
    ):
        assert lock.find(parse_requirement(text)) is expected, text
    assert Lock(kernels=(branch,)).find(parse_requirement("org/k@main")) is branch


def test_content_digest_is_what_its_definition_says() -> None:
    import base64
    import hashlib

    files = {"b.py": b"1", "a/é.py": b"2"}
    digest = Digest(
        algorithm="sha512", files={p: hash_bytes(d, "sha512") for p, d in files.items()}
    )
    lines = sorted(
        [
            *(f"sha512 {hashlib.sha512(d).hexdigest()} {p}\n" for p, d in files.items()),
            f"sha256 {hashlib.sha256(b'{}').hexdigest()} metadata.json\n",
        ],
        key=lambda line: line.split(" ", 2)[2].encode(),
    )
    expected = hashlib.sha256("".join(lines).encode()).hexdigest()
    assert content_digest(b"{}", digest) == f"sha256:{expected}"
    assert base64.b64decode(digest.files["b.py"]).hex() in lines[1]


@pytest.mark.parametrize(
    "entry",
    [
        'requirement = "*"', 'requirement = ">=1, <3"', "version = 0", "version = true",
        "version = 18446744073709551615", "version = 18446744073709551616",
        f'commit = "{"A" * 40}"', f'commit = "{B * 2}"', 'commit = "a"', "commit = 1",
        'dependencies = ["org/b==1", "org/a@main"]', 'dependencies = ["org"]',
        "dependencies = {}", "new = [1]", "variants = []", f'variants = {{ "a/b" = "{DIGEST}" }}',
        f'variants = {{ "/a" = "{DIGEST}" }}', 'variants = { a = "sha256:0" }',
    ],
)  # fmt: skip
def test_what_is_read_is_what_the_model_allows(entry: str) -> None:
    """The model, which the schema is made of, has the last word over what every load reads."""
    commit = "" if entry.startswith("commit") else f'commit = "{A}"\n'
    text = f'schema = 1\n[[kernel]]\nrepo-id = "org/k"\n{commit}{entry}\n'
    plain, found = judge(text, "kernelhub.lock")
    error = refusal(parse_lock, text)
    if plain is None:
        assert error is not None
        assert error.problems == tuple(found)
    else:
        (held,) = plain["kernel"]
        (read,) = parse_lock(text).kernels
        assert (read.repo_id, read.version) == (held["repo-id"], held.get("version"))
        assert (read.commit, dict(read.variants)) == (held["commit"], held["variants"])
        assert sorted(read.dependencies) == sorted(held["dependencies"])
        stated = held.get("requirement")
        assert (read.requirement is None) == (stated is None)


NAMES = st.text(string.ascii_lowercase, min_size=1, max_size=3)
KERNELS = st.builds(
    lambda name, commit, version, stated, variants, needs: LockedKernel(
        repo_id=f"org/{name}",
        requirement=parse_requirement(f"org/{name}{stated}") if stated is not None else None,
        version=version,
        commit=commit * 40,
        variants={f"torch-{v}": DIGEST for v in sorted(variants)},
        dependencies=tuple(sorted(f"org/{n}==1" for n in needs)),
    ),
    NAMES,
    st.sampled_from("abc"),
    st.none() | st.integers(0, 99),
    st.none() | st.sampled_from(["", ">=1", "==2", "@main", "<3,>=1"]),
    st.sets(NAMES, max_size=3),
    st.sets(NAMES, max_size=3),
)
LOCKS = st.lists(KERNELS, max_size=5, unique_by=lambda k: k.repo_id).map(
    lambda kernels: Lock(kernels=tuple(sorted(kernels, key=sort_key)))
)


@given(LOCKS, LOCKS)
def test_round_trip_whatever_was_there_before(lock: Lock, before: Lock) -> None:
    text = render_lock(lock, render_lock(before))
    assert parse_lock(text) == lock
    assert render_lock(lock, text) == text


@given(LOCKS, st.text(max_size=300))
def test_a_file_that_is_no_lock_spoils_nothing(lock: Lock, before: str) -> None:
    text = render_lock(lock, before)
    assert parse_lock(text) == lock


COMMENT = st.text(string.printable.replace("\r", "").replace("\n", "").replace("\x0b", "")
                  .replace("\x0c", "").replace("\t", ""), max_size=20)  # fmt: skip


@given(LOCKS, st.data())
def test_no_comment_is_lost(lock: Lock, data: st.DataObject) -> None:
    lines = render_lock(lock).split("\n")
    placed = []
    for number in range(data.draw(st.integers(0, 4))):
        comment = f"# {number} {data.draw(COMMENT)}".rstrip()
        placed.append(comment)
        lines.insert(data.draw(st.integers(0, len(lines))), comment)
    after = render_lock(lock, "\n".join(lines))
    assert parse_lock(after) == lock
    for comment in placed:
        assert comment in after


@given(st.text(max_size=300) | st.binary(max_size=300))
def test_any_text_is_read_or_refused(text: str | bytes) -> None:
    start = b"schema = 1\n" if isinstance(text, bytes) else "schema = 1\n"
    for data in (text, start + text):
        error = refusal(parse_lock, data)
        assert error is None or error.problems
