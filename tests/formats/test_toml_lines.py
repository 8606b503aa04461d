"""Where values stand in TOML, and what happens to text that is no TOML."""

from __future__ import annotations

from contextlib import suppress

import pytest
import tomlkit
from hypothesis import given
from hypothesis import strategies as st

from kernelhub.errors import FormatError
from kernelhub.formats.toml_lines import Path, Positions, load_toml

TEXT = '''# comment with [brackets] and "quotes
top = 1
a.b."c d" = 'x'  # dotted

[general]
multi = """
[not.a.table]
key = 1 \\"""" # end
list = [
  "one", # ]
  { x = 1, y.z = [ 2, 3 ] },
  1979-05-27 07:32:00,
]
literal = \'\'\'
it's\'\'\'
"quoted key" = true

[[items]]
n = 0
[items.sub]
deep = 1
[[items]]
n = 1
'''


@pytest.mark.parametrize(
    ("path", "line", "column"),
    [
        (("top",), 2, 7),
        (("a", "b", "c d"), 3, 13),
        (("general", "multi"), 6, 9),
        (("general", "list"), 9, 8),
        (("general", "list", 0), 10, 3),
        (("general", "list", 1, "x"), 11, 9),
        (("general", "list", 1, "y", "z"), 11, 18),
        (("general", "list", 1, "y", "z", 1), 11, 23),
        (("general", "list", 2), 12, 3),
        (("general", "literal"), 14, 11),
        (("general", "quoted key"), 16, 16),
        (("items", 0, "n"), 19, 5),
        (("items", 0, "sub", "deep"), 21, 8),
        (("items", 1, "n"), 23, 5),
        (("general", "missing"), 5, 1),
        (("missing",), 1, 1),
    ],
)
def test_positions_of_values(path: Path, line: int, column: int) -> None:
    _, positions = load_toml(TEXT, "x.toml")
    assert positions.value(path) == (line, column)


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_positions_of_keys(newline: str) -> None:
    _, positions = load_toml(TEXT.replace("\n", newline), "x.toml")
    assert positions.key(("general",)) == (5, 1)
    assert positions.key(("general", "list")) == (9, 1)
    assert positions.key(("general", "list", 1, "y", "z")) == (11, 12)
    assert positions.key(("items", 1)) == (22, 1)


@pytest.mark.parametrize(
    ("data", "line", "column", "code"),
    [
        ("a = 1\nb = = 2\n", 2, 5, "toml-syntax"),
        ("a = 1\nb =", 2, 4, "toml-syntax"),
        ("[a]\n[a]\n", 2, 3, "toml-syntax"),
        (b"a = 1\nb = '\xff'\n", 2, 6, "not-utf8"),
        ("é = '\ud800'".replace("é", "e"), 1, 6, "not-utf8"),
        (b"\xff\xfea\0", 1, 1, "not-utf8"),
    ],
)
def test_broken_text_has_line_and_column(
    data: str | bytes, line: int, column: int, code: str
) -> None:
    with pytest.raises(FormatError) as caught:
        load_toml(data, "build.toml")
    (problem,) = caught.value.problems
    assert (problem.line, problem.column, problem.code) == (line, column, code)
    assert problem.path == "build.toml"


@pytest.mark.parametrize(
    "text",
    ["a = " + "[" * 20000, "a = " + "[" * 20000 + "]" * 20000, "a = " + "{a=" * 20000,
     "a = " + "1" * 6000, "#" * 2_000_000, "a." * 100_000 + "a = 1"],
    ids=["open", "deep", "inline", "digits", "large", "dots"],
)  # fmt: skip
def test_hostile_text_is_a_fault_of_format(text: str) -> None:
    with pytest.raises(FormatError):
        load_toml(text, "build.toml")


def test_a_byte_order_mark_is_dropped() -> None:
    assert load_toml(b"\xef\xbb\xbfa = 1", "x.toml")[0] == {"a": 1}


@given(st.binary(max_size=60) | st.text(st.sampled_from("ab[]{}=.,\"'#\n 1\\é"), max_size=40))
def test_anything_else_is_never_another_error(data: bytes | str) -> None:
    with suppress(FormatError):
        load_toml(data, "x.toml")


_KEYS = st.text(st.sampled_from("ab-_ .é\"'\\[]#="), min_size=1, max_size=4)
_LEAVES = st.integers(-9, 9) | st.text(max_size=6) | st.booleans()
_VALUES = st.recursive(
    _LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(_KEYS, _VALUES, max_size=4))
def test_every_value_is_found_where_it_stands(document: dict[str, object]) -> None:
    """What stands at the found place, read alone, is the value (or its table's own header)."""
    text = tomlkit.dumps(document)
    raw, positions = load_toml(text, "x.toml")
    for path, value in _leaves(raw, ()):
        assert path in positions.values
        line, column = positions.value(path)
        rest = "\n".join(text.split("\n")[line - 1 :])[column - 1 :]
        assert _begins_with(rest, value)


def _leaves(value: object, path: Path) -> list[tuple[Path, object]]:
    if isinstance(value, dict):
        return [leaf for key, inner in value.items() for leaf in _leaves(inner, (*path, key))]
    if isinstance(value, list):
        return [leaf for i, inner in enumerate(value) for leaf in _leaves(inner, (*path, i))]
    return [(path, value)]


def _begins_with(text: str, value: object) -> bool:
    if isinstance(value, bool):
        return text.startswith(str(value).lower())
    if isinstance(value, int):
        return text.startswith(str(value))
    return text.startswith(('"', "'"))


def test_positions_of_an_empty_text() -> None:
    assert Positions("").key(("a",)) == (1, 1)
