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
    Tiles,
    Tree,
    compile_tree,
    parse,
    product,
    render,
    used_features,
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


blocks = st.sampled_from([2, 3, 64, 2**31]) | st.integers(2, 2**31)


def feature_tests():
    tiles = st.builds(Tiles, st.just("M"), blocks)
    factor = st.sampled_from(["M", "scale"]) | tiles
    factors = st.lists(factor, min_size=1, max_size=3).map(tuple)
    thresholds = numbers | st.integers(-4, 12)  # where counts of tiles lie
    right = st.just(()) | factors
    texts = st.lists(st.text(max_size=10), min_size=1, max_size=3).map(tuple)
    flags = st.lists(st.booleans(), min_size=1, max_size=2).map(tuple)
    return (
        st.builds(Numeric, factors, thresholds, right)
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


@given(
    trees(), st.integers(-10, 10) | st.integers(), st.floats(-2, 2), st.text(max_size=3),
    st.booleans(),
)  # fmt: skip
def test_all_ways_to_ask_a_tree_agree_with_its_text(tree, m, scale, dtype, causal) -> None:
    """The text means to Python, and so to whoever reads it, what it means to us."""
    values = {"M": m, "scale": scale, "x_dtype": dtype, "causal": causal}
    module: dict = {}
    exec(render(tree), module)
    ranking = module["choose"](**values)
    path, leaf = path_through(tree, values)
    compiled = compile_tree(tree)
    assert leaf.ranking == ranking
    assert compiled.choose(*(values[name] for name in compiled.features)) == ranking
    assert all(holds(test, values) is outcome for test, outcome in path)


@given(st.integers(0, 2**62), blocks, st.integers(0, 600))
def test_tiles_are_counted_as_blocks_that_cover_the_size(m: int, block: int, n: int) -> None:
    counted = len(range(0, m, block)) * len(range(0, n, 64))
    factors = (Tiles("M", block), Tiles("N", 64))
    values = {"M": m, "N": n}
    assert product(factors, values) == counted
    assert product(factors, values, 3) == 3 * counted
    assert holds(Numeric(factors, counted), values)
    assert not holds(Numeric(factors, counted - 1), values)
    assert holds(Numeric(("M",), block, (Tiles("M", block),)), values)  # at most whole blocks


def test_the_text_is_what_people_review() -> None:
    assert render(SMALL) == SMALL_TEXT
    assert parse(SMALL_TEXT, "t.py") == SMALL
    assert parse(SMALL_TEXT.replace("\n", "\r\n"), "t.py") == SMALL


ONE_WAVE = Numeric((Tiles("M", 128), Tiles("N", 256)), 264)
TILED = replace(SMALL, root=Split(ONE_WAVE, Leaf((0,)), Leaf((1,))))
TILED_TEXT = SMALL_TEXT[: SMALL_TEXT.index("    if M")] + (
    "    if -(-M // 128) * -(-N // 256) <= 264:\n"
    "        return (0,)  # BLOCK=64 num_warps=4\n"
    "    else:\n"
    "        return (1,)  # BLOCK=128 num_warps=8\n"
)


def test_counts_of_tiles_are_divisions_of_integers_upwards() -> None:
    assert render(TILED) == TILED_TEXT
    assert parse(TILED_TEXT, "t.py") == TILED
    assert parse(TILED_TEXT.replace(" // ", "//"), "t.py") == TILED
    assert used_features(TILED) == ("M", "N")
    choose = compile_tree(TILED).choose
    assert choose(128 * 132, 512) == (0,)  # 264 tiles, two for each of 132 multiprocessors
    assert choose(128 * 132 + 1, 512) == (1,)
    assert choose(128 * 132, 513) == (1,)


def test_the_longest_products_are_read_back() -> None:
    tiles = tuple(Tiles("M", 2 + index) for index in range(8))
    tree = replace(SMALL, root=Split(Numeric(tiles, -1, tiles), Leaf((0,)), Leaf((1,))))
    assert parse(render(tree), "t.py") == tree
    longer = replace(tree, root=Split(Numeric((*tiles, "M"), 1), Leaf((0,)), Leaf((1,))))
    with pytest.raises(FormatError, match="1 to 8 factors"):
        render(longer)


def test_a_text_may_hold_what_looks_like_a_long_product() -> None:
    tree = replace(SMALL, configs=({"note": "*" * 40}, {"note": "-" * 40}))
    assert parse(render(tree), "t.py") == tree


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
    whole = data.draw(st.sampled_from([SMALL_TEXT, TILED_TEXT]))
    at = data.draw(st.integers(0, len(whole)))
    length = data.draw(st.integers(0, 30))
    snippet = data.draw(
        st.text(max_size=8)
        | st.sampled_from(
            ["__import__('os')", "M.x", "()" * 5, "-" * 9, "f'{M}'", "lambda: 0", "M if M else N",
             "*", "9" * 40, "1e999", "return", "if M:\n", "(" * 40, "#", "\r", "\x0c", "\t", ":=",
             "-(-M // 128)", "-(-", " // 2", "-(-" * 4, "--M"]
        )
    )  # fmt: skip
    text = whole[:at] + snippet + whole[at + length :]
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
        ("M * N <=", "-(-K // 8) <=", 32, "counted of 'K', which is not an int"),
        ("M * N <=", "-(-x_dtype // 8) <=", 32, "counted of 'x_dtype', which is not an int"),
        ("M * N <=", "-(-M // 1) <=", 32, "integer from 2 to 2147483648, not 1"),
        ("* N:", "* -(-N // 2147483649):", 32, "integer from 2 to 2147483648, not 2147483649"),
        ("M * N <=", "-(-1 // 8) <=", 32, "'-' belongs in front of a number"),
        ("M * N <=", "-(-M // N) <=", 32, "'-' belongs in front of a number"),
        ("M * N <=", "-(-M // 8.5) <=", 32, "'-' belongs in front of a number"),
        ("M * N <=", "-(-M // -8) <=", 32, "'-' belongs in front of a number"),
        ("M * N <=", "-(M // 8) <=", 32, "'-' belongs in front of a number"),
        ("M * N <=", "-(-(M * N) // 8) <=", 32, "'-' belongs in front of a number"),
        ("M * N <=", "-(-M // " + "9" * 40 + ") <=", 32, "'-' belongs in front of a number"),
        ("M * N <=", "-M <=", 32, "'-' belongs in front of a number"),
        ("M * N <=", "M // 8 <=", 32, "'/' does not belong"),
        ("M * N <=", "M * 8 <=", 32, "consists of features and of tile counts"),
        ("M * N <=", "M -(-N // 8) <=", 32, "consists of features and of tile counts"),
        ("M * N <=", "M" + " -(-N // 8)" * 18 + " <=", 32, "too many factors"),
        ("M * N <=", "M" + "\n*\nM" * 18 + "<=", 32 + 2 * 17 + 1, "too many factors"),
        ("4096.5 * N", "-(-N // 8)", 32, "only literals"),
        ("64,", "-(-M // 8),", 26, "only literals"),
        ("return (0, 1)", "return (-(-M // 8),)", 33, "only literals"),
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
        "X = 1" + "-1" * 150_000,
        "X = (" + ("1*" * 16 + "\n") * 10_000 + "1)",
        "X = -(-M // 2)" + "-(-M // 2)" * 20_000,
        "X = " + "-(-M // 2) * " * 20_000 + "1",
        "X = " + "-(-(-(-" * 50_000,
        "-(-" + "M" * 400_000,
        "-(-M //" * 50_000,
        "-(-M" + " " * 400_000,
        "-(-M // " + "9" * 400_000,
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
        *(
            {"root": Split(Numeric(("M",), 1, (tiles,)), Leaf((0,)), Leaf((1,)))}
            for tiles in (
                Tiles("K", 8),
                Tiles("x_dtype", 8),
                Tiles("M", 1),
                Tiles("M", -8),
                Tiles("M", True),
                Tiles("M", 8.0),
                Tiles("M", "8"),
                Tiles("M", 2**31 + 1),
            )
        ),
        {"features": {"M": "float"}, "root": Split(ONE_WAVE, Leaf((0,)), Leaf((1,)))},
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
