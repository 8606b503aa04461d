"""Trees as text: what is rendered is read back, and nothing else gets in."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelhub.errors import FormatError
from kernelhub.formats.tree import (
    Categorical,
    DeviceFacts,
    Leaf,
    Numeric,
    Split,
    Tree,
    compile_tree,
    parse,
    render,
)
from kernelhub.formats.tree_compile import holds, path_through

H200 = DeviceFacts(
    name="NVIDIA H200", arch="sm_90", sm_count=132, memory=150_754_820_096, shared_memory=232_448
)
FEATURES = {"M": "int", "scale": "float", "x_dtype": "str", "causal": "bool"}

numbers = st.integers(-(2**63) + 1, 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
literals = st.none() | st.booleans() | numbers | st.text(max_size=20)
names = st.sampled_from(["BLOCK", "num_warps", "algorithm", "_x1"])
configs = st.lists(st.dictionaries(names, literals, max_size=4), min_size=1, max_size=4)


def feature_tests():
    factors = st.lists(st.sampled_from(["M", "scale"]), min_size=1, max_size=3).map(tuple)
    right = st.just(()) | factors
    texts = st.lists(st.text(max_size=10), min_size=1, max_size=3).map(tuple)
    flags = st.lists(st.booleans(), min_size=1, max_size=2).map(tuple)
    return (
        st.builds(Numeric, factors, numbers, right)
        | st.builds(Categorical, st.just("x_dtype"), texts)
        | st.builds(Categorical, st.just("causal"), flags)
    )


@st.composite
def trees(draw) -> Tree:
    found = draw(configs)
    leaf = st.lists(
        st.integers(0, len(found) - 1), min_size=1, max_size=len(found), unique=True
    ).map(lambda ranking: Leaf(tuple(ranking)))
    root = draw(
        st.recursive(
            leaf, lambda below: st.builds(Split, feature_tests(), below, below), max_leaves=12
        )
    )
    return Tree(
        kernel="ops.scan",
        device=H200,
        tools={"triton": "3.6.0"},
        source_hash="sha256:" + "a" * 64,
        features=FEATURES,
        configs=tuple(found),
        root=root,
    )


SMALL = Tree(
    kernel="attention.fwd",
    device=H200,
    tools={"triton": "3.6.0", "torch": "2.11.0"},
    source_hash="sha256:" + "0" * 64,
    features={"M": "int", "N": "int", "x_dtype": "str"},
    configs=({"BLOCK": 64, "num_warps": 4}, {"BLOCK": 128, "num_warps": 8}),
    root=Split(
        Numeric(("M", "N"), 4096.5, ("N",)),
        Leaf((0, 1)),
        Split(Categorical("x_dtype", ("float16",)), Leaf((1,)), Leaf((1, 0))),
    ),
)
SMALL_TEXT = '''"""Which configuration attention.fwd runs with on NVIDIA H200.

Generated from measurements, which lie beside it. Read as data, never executed.
"""

SCHEMA = 1
KERNEL = "attention.fwd"
DEVICE = {
    "name": "NVIDIA H200",
    "arch": "sm_90",
    "sm_count": 132,
    "memory": 150754820096,
    "shared_memory": 232448,
}
TOOLS = {
    "torch": "2.11.0",
    "triton": "3.6.0",
}
SOURCE = "sha256:0000000000000000000000000000000000000000000000000000000000000000"
FEATURES = {
    "M": "int",
    "N": "int",
    "x_dtype": "str",
}
CONFIGS = (
    {"BLOCK": 64, "num_warps": 4},  # 0
    {"BLOCK": 128, "num_warps": 8},  # 1
)


def choose(M, N, x_dtype):
    if M * N <= 4096.5 * N:
        return (0, 1)  # BLOCK=64 num_warps=4
    elif x_dtype in ("float16",):
        return (1,)  # BLOCK=128 num_warps=8
    else:
        return (1, 0)  # BLOCK=128 num_warps=8
'''


@given(trees())
def test_what_is_rendered_is_read_back(tree: Tree) -> None:
    again = parse(render(tree), "t.py")
    assert repr(again) == repr(replace(tree))  # repr: 1, 1.0 and True are different
    assert render(again) == render(tree)


@given(trees(), st.integers(-10, 10), st.floats(-2, 2), st.text(max_size=3), st.booleans())
def test_the_compiled_function_goes_where_the_tree_goes(tree, m, scale, dtype, causal) -> None:
    values = {"M": m, "scale": scale, "x_dtype": dtype, "causal": causal}
    path, leaf = path_through(tree, values)
    compiled = compile_tree(tree)
    assert compiled.choose(*(values[name] for name in compiled.features)) == leaf.ranking
    assert all(holds(test, values) is outcome for test, outcome in path)


def test_the_text_is_what_people_review() -> None:
    assert render(SMALL) == SMALL_TEXT
    assert parse(SMALL_TEXT, "t.py") == SMALL
    assert parse(SMALL_TEXT.replace("\n", "\r\n"), "t.py") == SMALL


@given(
    st.text(max_size=400) | st.text(alphabet="defchooseMN()[]{}:=<*-,\"'#0159. \n", max_size=400)
)
@settings(max_examples=4 * settings.default.max_examples)
def test_arbitrary_text_is_refused(text: str) -> None:
    with pytest.raises(FormatError):
        parse(text, "t.py")


@given(st.data())
@settings(max_examples=4 * settings.default.max_examples)
def test_an_edited_tree_is_refused_or_is_still_a_tree(data) -> None:
    at = data.draw(st.integers(0, len(SMALL_TEXT)))
    length = data.draw(st.integers(0, 30))
    snippet = data.draw(
        st.text(max_size=8)
        | st.sampled_from(
            ["__import__('os')", "M.x", "()" * 5, "-" * 9, "f'{M}'", "lambda: 0", "M if M else N",
             "*", "9" * 40, "1e999", "return", "if M:\n", "(" * 40, "#", "\r", "\x0c", "\t", ":="]
        )
    )  # fmt: skip
    text = SMALL_TEXT[:at] + snippet + SMALL_TEXT[at + length :]
    try:
        tree = parse(text, "t.py")
    except FormatError:
        return
    assert parse(render(tree), "t.py") == tree
    compile_tree(tree)


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ("SCHEMA = 1", "import os", 6, "'import' does not belong"),
        ("SCHEMA = 1", "SCHEMA = 2", 1, "schema 2"),
        ("SCHEMA = 1\n", "", 1, "missing: SCHEMA"),
        ("return (0, 1)", "return (0, 7)", 33, "must rank different"),
        ("return (0, 1)", "return (0, 0)", 33, "must rank different"),
        ("return (0, 1)", "return M", 33, "only literals"),
        ("M * N <=", "M * K <=", 32, "'K' is not a numeric"),
        ("M * N <=", "x_dtype <=", 32, "'x_dtype' is not a numeric"),
        ("x_dtype in", "M in", 34, "'M' is not a str"),
        ("4096.5 * N", "1e400", 32, "finite"),
        ("4096.5 * N", "N", 32, "only literals"),
        ("4096.5", "9" * 40, 32, "too long"),
        ("(M, N, x_dtype)", "(M, N)", 31, "exactly the names"),
        ("(M, N, x_dtype)", "(M, N=1, x_dtype=2)", 31, "exactly the names"),
        ("64,", "M,", 26, "only literals"),
        ('"int",\n    "N"', '"complex",\n    "N"', 20, "want an identifier"),
        ("sha256:0", "md5:0", 19, "64 hexadecimal"),
        ("132", "-1", 8, "at least 0"),
        ('"sm_count": 132,', "", 1, "DEVICE must have"),
        ('attention.fwd"\nDEVICE', 'att\\yon"\nDEVICE', 7, "does not belong"),
        ("def choose", "@M\ndef choose", 31, "'@' does not belong"),
        ("def choose", "x = 1\ndef choose", 31, "no field"),
    ],
)
def test_refusals_name_the_line(old: str, new: str, line: int, says: str) -> None:
    assert old in SMALL_TEXT
    with pytest.raises(FormatError) as caught:
        parse(SMALL_TEXT.replace(old, new, 1), "t.py")
    assert caught.value.problems[0].line == line
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "attack",
    [
        "(" * 100_000,
        "X = " + "-" * 200_000 + "1",
        "X = " + "not " * 50_000 + "1",
        "X = " + "a." * 100_000 + "a",
        "X = " + "1*" * 100_000 + "1",
        "X = " + "9" * 100_000,
        "def choose(M):\n  if M <= 1:\n    return (0,)\n"
        + "  elif M <= 2:\n    return (0,)\n" * 9000,
        "def choose(M):\n"
        + "".join(" " * i + "if M <= 1:\n" for i in range(1, 300))
        + " " * 300
        + "return (0,)",
        "#\r" + "(" * 100_000,
        'X = f"' + "{" * 50_000 + '"',
        "X = 1\n" * 200_000,
        "\x00",
        "X = '\ud800'",
    ],
    ids=lambda text: text[:12].encode("ascii", "replace").decode() + f"-{len(text)}",
)
def test_attacks_are_refused_quickly(attack: str) -> None:
    with pytest.raises(FormatError):
        parse(attack, "t.py")


@pytest.mark.parametrize(
    "change",
    [
        {"kernel": "a b"},
        {"source_hash": "?"},
        {"configs": ()},
        {"root": Leaf(())},
        {"root": Leaf((5,))},
        {"configs": ({"BLOCK": math.inf},), "root": Leaf((0,))},
        {"features": {"M": "int", "class": "str"}, "root": Leaf((0,))},
        {"root": Split(Numeric(("M",), math.nan), Leaf((0,)), Leaf((1,)))},
    ],
)
def test_a_broken_tree_is_not_written(change: dict) -> None:
    with pytest.raises(FormatError):
        render(replace(SMALL, **change))


def test_a_chain_that_is_too_deep_is_not_written() -> None:
    root = Leaf((0,))
    for _ in range(60):
        root = Split(Numeric(("M",), 1), Leaf((1,)), root)
    with pytest.raises(FormatError, match="levels"):
        render(replace(SMALL, root=root))
