"""Where a value stands in TOML text: dotted path -> line and column.

Python's TOML parser tells no positions, so this walks the text a second time. It expects text that
the parser has accepted, and only finds keys and where values begin; it decides nothing.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from collections.abc import Mapping
from typing import Any

from kernelhub.errors import FormatError, Problem

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Path = tuple[int | str, ...]

MAX_BYTES = 256 << 10
MAX_DOTS = 200  # in a line: Python's parser takes a time quadratic in the parts of a dotted key
_STRING = re.compile(
    r'"""(?:\\.|(?!""")[^\\])*"{3,5}'
    r"|'''(?:(?!''').)*'{3,5}"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'[^'\n]*'",
    re.DOTALL,
)
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_BLANK = re.compile(r"[ \t]*")
_SPACE = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
_SCALAR = re.compile(r"[^,\]}\n#]*")
_KEYS = re.compile(r"\((?:'[^']*',? ?)+\)")  # a dotted key, as tomllib shows it: a tuple
_AT = re.compile(r"\(at line (\d+), column (\d+)\)")


class Positions:
    """Positions of keys and values. Lines and columns count from 1."""

    def __init__(self, text: str) -> None:
        self._starts = [0, *(i + 1 for i, c in enumerate(text) if c == "\n")]
        self.keys: dict[Path, int] = {}
        self.values: dict[Path, int] = {}

    def key(self, path: Path) -> tuple[int, int]:
        """Where the key (or table header) `path` stands, or the nearest table around it."""
        return self._nearest(path, self.keys)

    def value(self, path: Path) -> tuple[int, int]:
        """Where the value of `path` begins, or the nearest table around it."""
        return self._nearest(path, self.values)

    def _nearest(self, path: Path, table: Mapping[Path, int]) -> tuple[int, int]:
        while path:
            offset = table.get(path, self.keys.get(path))
            if offset is not None:
                return self.line_column(offset)
            path = path[:-1]
        return 1, 1

    def line_column(self, offset: int) -> tuple[int, int]:
        """Line and column of a character."""
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1


class _Scanner:
    """Recursive descent over accepted TOML; stops where it does not understand."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.found = Positions(text)
        self._lists: dict[Path, int] = {}

    def document(self) -> Positions:
        table: Path = ()
        while self._skip(_SPACE) < len(self.text):
            before = self.at
            if self.text.startswith("[", self.at):
                table = self._header()
            else:
                self._pair(table)
            if self.at == before:
                break
        return self.found

    def _header(self) -> Path:
        start = self.at
        is_list = self.text.startswith("[[", start)
        self.at += 1 + is_list
        parts = self._key()
        self.at = self._skip(_BLANK) + 1 + is_list
        path: Path = ()
        for depth, part in enumerate(parts, 1):
            path = (*path, part)
            if is_list and depth == len(parts):
                self._lists[path] = self._lists.get(path, -1) + 1
            self.found.keys.setdefault(path, start)
            if path in self._lists:
                path = (*path, self._lists[path])
        self.found.keys.setdefault(path, start)
        return path

    def _pair(self, table: Path) -> None:
        self._skip(_SPACE)
        start = self.at
        path = (*table, *self._key())
        for depth in range(len(table) + 1, len(path) + 1):
            self.found.keys.setdefault(path[:depth], start)
        self._skip(_BLANK)
        if self.text.startswith("=", self.at):
            self.at += 1
            self._value(path)

    def _key(self) -> tuple[str, ...]:
        parts: list[str] = []
        while True:
            self._skip(_BLANK)
            match = _STRING.match(self.text, self.at) or _BARE_KEY.match(self.text, self.at)
            if match is None:
                return tuple(parts)
            quoted = match.group()[0] in "\"'"
            parts.append(tomllib.loads(f"k={match.group()}")["k"] if quoted else match.group())
            self.at = match.end()
            self._skip(_BLANK)
            if not self.text.startswith(".", self.at):
                return tuple(parts)
            self.at += 1

    def _value(self, path: Path) -> None:
        self._skip(_SPACE)
        self.found.values.setdefault(path, self.at)
        if self.text.startswith("[", self.at):
            self._items(path, "]")
        elif self.text.startswith("{", self.at):
            self._items(path, "}")
        else:
            match = _STRING.match(self.text, self.at) or _SCALAR.match(self.text, self.at)
            self.at = match.end() if match else len(self.text)

    def _items(self, path: Path, close: str) -> None:
        self.at += 1
        index = 0
        while self._skip(_SPACE) < len(self.text):
            before = self.at
            if self.text.startswith(close, self.at):
                self.at += 1
                return
            if close == "]":
                self.found.keys.setdefault((*path, index), self.at)
                self._value((*path, index))
            else:
                self._pair(path)
            index += 1
            self._skip(_SPACE)
            if self.text.startswith(",", self.at):
                self.at += 1
            if self.at == before:
                return

    def _skip(self, pattern: re.Pattern[str]) -> int:
        match = pattern.match(self.text, self.at)
        self.at = match.end() if match else self.at
        return self.at


def load_toml(data: str | bytes, path: str) -> tuple[dict[str, Any], Positions]:
    """Parse TOML text, or the bytes of a file, and find where everything stands.

    Raises:
        FormatError: not UTF-8, broken TOML, or absurdly large; with line and column.
    """
    text = decode_text(data, path)
    raw = parse_toml(text, path)
    try:
        return raw, _Scanner(text).document()
    except RecursionError as error:
        raise _too_deep(path) from error


def parse_toml(text: str, path: str) -> dict[str, Any]:
    """Parse text that `decode_text` gave.

    Raises:
        FormatError: broken TOML, with line and column.
    """
    _refuse_long_keys(text, path)
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _syntax(path, str(error), text) from error
    except ValueError as error:  # an integer of more digits than Python converts
        raise _fault(path, f"a value cannot be read: {error}", None, "toml-syntax") from error
    except RecursionError as error:
        raise _too_deep(path) from error


def _too_deep(path: str) -> FormatError:
    return _fault(path, "lists or tables are nested too deeply", None, "toml-syntax")


def decode_text(data: str | bytes, path: str) -> str:
    """The text of a TOML file. A byte order mark is dropped, line ends are kept.

    Raises:
        FormatError: not UTF-8, or absurdly large.
    """
    if len(data) > MAX_BYTES:
        raise _fault(path, f"the file is larger than {MAX_BYTES} bytes", None, "too-large")
    if isinstance(data, str):
        surrogate = next((i for i, c in enumerate(data) if "\ud800" <= c <= "\udfff"), None)
        if surrogate is not None:
            where = Positions(data).line_column(surrogate)
            raise _fault(path, "this is not UTF-8", where, "not-utf8")
        return data.removeprefix("\ufeff")
    try:
        return data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8")
        where = Positions(before).line_column(len(before))
        message = f"this is not UTF-8: byte 0x{data[error.start]:02x}"
        raise _fault(path, message, where, "not-utf8") from error


def _refuse_long_keys(text: str, path: str) -> None:
    for number, line in enumerate(text.split("\n"), 1):
        if line.count(".") > MAX_DOTS:
            message = f"the line has more than {MAX_DOTS} dots"
            raise _fault(path, message, (number, 1), "too-large")


def _syntax(path: str, message: str, text: str) -> FormatError:
    if match := _AT.search(message):
        where = int(match[1]), int(match[2])
        message = message[: match.start()].strip()
    else:
        where = Positions(text).line_column(len(text))
    message = _KEYS.sub(lambda keys: ".".join(re.findall(r"'([^']*)'", keys[0])), message)
    return _fault(path, message[:1].lower() + message[1:], where, "toml-syntax")


def _fault(path: str, message: str, where: tuple[int, int] | None, code: str) -> FormatError:
    line, column = where or (None, None)
    hint = "write TOML 1.0 in UTF-8" if code in ("toml-syntax", "not-utf8") else None
    found = Problem(message=message, path=path, line=line, column=column, code=code, hint=hint)
    return FormatError(path, [found])
