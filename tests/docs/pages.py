"""What the commands of a page are: its files, its sessions, and the output that it shows.

Three kinds of block have a meaning:

- a `{code-block}` with a `:caption:` is a file of that name, written before what follows it;
- a ```console block is run: lines that begin with `$ ` are commands (a line that begins with `> `
  carries on), all others are what they print, `...` standing for anything;
- a ```sh block is not run, because it needs a GPU, a Hub on the internet or a person; its commands
  are only looked up.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

_FENCE = re.compile(
    r"^(?P<indent> *)(?P<fence>`{3,})(?P<info>[^\n`]*)\n(?P<body>.*?)^(?P=indent)(?P=fence) *$",
    re.MULTILINE | re.DOTALL,
)
_FRONT_MATTER = re.compile(r"\A---\n(.*?)^---\n", re.MULTILINE | re.DOTALL)
_CAPTION = re.compile(r"^:caption: *(\S+)\n", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file that the reader is to write."""

    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command of the shell, the line it stands in, and what the page says that it prints."""

    text: str
    line: int
    shown: str = ""

    @property
    def in_background(self) -> bool:
        return self.text.endswith("&")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page.

    Attributes:
        steps: files and commands, in the order of the page.
        unrun: commands of ```sh blocks.
        python: ```python blocks that no file is made of.
        facts: the page's front matter.
    """

    steps: tuple[File | Command, ...]
    unrun: tuple[Command, ...]
    python: tuple[str, ...]
    facts: Mapping[str, str] = field(default_factory=dict)


def read(path: Path) -> Page:
    """Take a page of Markdown apart."""
    text = path.read_text("utf-8")
    steps: list[File | Command] = []
    unrun: list[Command] = []
    python: list[str] = []
    for match in _FENCE.finditer(text):
        info, body = match["info"].strip(), _dedent(match["body"], len(match["indent"]))
        first = text.count("\n", 0, match.start()) + 2
        if info.startswith("{code-block}"):
            caption = _CAPTION.search(body)
            if caption is not None:
                steps.append(File(name=caption[1], text=_without_options(body)))
        elif info == "console":
            steps += _commands(body, first)
        elif info == "sh":
            unrun += [
                Command(text=line, line=first + at)
                for at, line in enumerate(body.splitlines())
                if line and not line.startswith("#")
            ]
        elif info == "python":
            python.append(body)
    return Page(
        steps=tuple(steps), unrun=tuple(unrun), python=tuple(python), facts=_front_matter(text)
    )


def _commands(body: str, first: int) -> Iterator[Command]:
    text, line, shown = "", 0, []
    for number, row in enumerate(body.splitlines(), start=first):
        if row.startswith("$ "):
            if text:
                yield Command(text=text, line=line, shown="\n".join(shown))
            text, line, shown = row[2:], number, []
        elif row.startswith("> ") and not shown:
            text += f"\n{row[2:]}"
        elif not text:
            raise ValueError(f"line {number}: a console block begins with a command, not {row!r}")
        else:
            shown.append(row)
    if text:
        yield Command(text=text, line=line, shown="\n".join(shown))


def matches(shown: str, printed: str) -> bool:
    """Whether a command printed what the page shows.

    `...` stands for any text, on a line of its own for any lines or none. A command without shown
    output may print what it likes.
    """
    lines = [
        r"(?:.*\n)*" if line == "..." else re.escape(line).replace(r"\.\.\.", ".*") + r"\n"
        for line in _trimmed(shown).splitlines()
    ]
    return not shown or re.fullmatch("".join(lines), f"{_trimmed(printed)}\n") is not None


def _trimmed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def _dedent(body: str, indent: int) -> str:
    return "".join(line[indent:] or "\n" for line in body.splitlines(keepends=True))


def _without_options(body: str) -> str:
    lines = body.splitlines(keepends=True)
    while lines and lines[0].startswith(":"):
        lines.pop(0)
    return "".join(lines).lstrip("\n")


def _front_matter(text: str) -> dict[str, str]:
    match = _FRONT_MATTER.match(text)
    pairs = (line.partition(":") for line in (match[1].splitlines() if match else ()))
    return {key.strip(): value.strip() for key, _, value in pairs}
