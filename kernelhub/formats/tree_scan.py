"""Which text may reach Python's parser as a tree: few tokens, few brackets, bounded size.

Python's parser is recursive, so no text goes to it that could nest it deeply. A count of tiles,
`-(-M // 128)`, is one token here: `//`, and `-` before anything but a number, stand nowhere else.
"""

from __future__ import annotations

import keyword
import re

from kernelhub.errors import Problem

from .tree_model import MAX_FACTORS, MAX_NODES

MAX_BYTES = 512 * 1024
_MAX_BRACKETS = 3
_MAX_SIGNS = 2 * MAX_FACTORS + 1  # `-1 * -(-M // 2) * ...`: two a factor, one of the number
_OWN = {"def", "if", "elif", "else", "return", "in", "True", "False", "None"}
_FOREIGN = frozenset(keyword.kwlist) - _OWN
# What `ascii` writes; another one would make Python warn.
_ESCAPE = r"""\\(?:["'\\nrt]|x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})"""
_TOKEN = re.compile(
    r"""(?P<space>[ ]+|\n)|(?P<comment>\#[^\n]*)
    |(?P<doc>\"\"\"[^"\\]*\"\"\")
    |(?<!\w)(?P<string>"(?:[^"\\\n]|ESCAPE)*"|'(?:[^'\\\n]|ESCAPE)*')
    |(?P<number>(?:\d[\d.]*(?:e[+-]?\d+)?)(?![\w.]))
    |(?P<name>[A-Za-z_]\w*)
    |(?P<tiles>-\(-[A-Za-z_]\w*[ ]*//[ ]*\d{1,32}\))
    |(?P<open>[(\[{])|(?P<close>[)\]}])|(?P<sign>[*-])|(?P<operator><=|[=:,])""".replace(
        "ESCAPE", _ESCAPE
    ),
    re.VERBOSE | re.ASCII,
)


class Refused(Exception):
    """What does not belong in a tree, and in which line."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line

    def problem(self, path: str) -> Problem:
        """The same as a problem of the file of that name."""
        return Problem(message=str(self), path=path, line=self.line)


def scan(text: str) -> None:
    """Refuse every token that no tree has, before anything recursive sees the text.

    Raises:
        Refused: at the first one.
    """
    if len(text) > MAX_BYTES or len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise Refused(f"a tree has at most {MAX_BYTES} bytes", 1)
    if "\r" in text:  # a line break to Python, inside a comment to the tokens below
        raise Refused("a carriage return does not belong in a tree", 1)
    position, line, depth, branches, signs = 0, 1, 0, 0, 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise Refused(f"{text[position]!r} does not belong in a tree", line)
        found, kind = match[0], match.lastgroup
        depth += (kind == "open") - (kind == "close")
        branches += found in ("if", "elif")
        # A product ends where something stands that is neither a factor nor a sign.
        signs = 0 if kind == "operator" else signs + (kind in ("sign", "tiles"))
        if kind == "name" and found in _FOREIGN:
            raise Refused(f"{found!r} does not belong in a tree", line)
        if kind == "number" and len(found) > 32:
            raise Refused("this number is too long", line)
        if found == "-" and not text[match.end() : match.end() + 1].isdigit():
            raise Refused(
                "'-' belongs in front of a number, or in a count of tiles: -(-M // 128)", line
            )
        if depth > _MAX_BRACKETS or branches > MAX_NODES // 2:
            raise Refused("too deep or too large", line)
        if signs > _MAX_SIGNS:
            raise Refused("a product has too many factors", line)
        line += found.count("\n")
        position = match.end()
