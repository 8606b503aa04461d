"""The text of a lock file: sorted, one value a line, with the comments of the file before it.

A comment belongs to the key or table header below it, or to the key in whose line it stands; those
of a kernel go where the kernel goes, and go with it when it is removed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from .lock import SCHEMA, Lock, LockedKernel, sort_key

_HEADER = ("# Written by `kernelhub lock`. Commit this file; comments in it are kept.",)
_KEY = re.compile(r"""\s*(?P<key>"(?:\\.|[^"\\])*"|'[^']*'|[A-Za-z0-9_-]+)\s*=""")
_TOKEN = re.compile(r""""(?:\\.|[^"\\])*"|'[^']*'|[^#"']""")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
_BARE = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(slots=True)
class _Comments:
    """Comments of one table: lines above a key, and at the end of its line. "" is the header."""

    facts: dict[str, str] = field(default_factory=dict)
    above: dict[str, list[str]] = field(default_factory=dict)
    beside: dict[str, str] = field(default_factory=dict)


def render_lock(lock: Lock, before: str | None = None) -> str:
    """The text of a lock.

    Args:
        lock: what to write.
        before: the text of the file that it replaces, whose comments are kept; it need not parse.
    """
    head, blocks, tail = _collect(before) if before is not None else (_Comments(), [], [])
    if before is None:
        head.above["schema"] = list(_HEADER)
    lines = list(_key(head, "schema", str(SCHEMA)))
    taken = _Taken(blocks)
    for kernel in sorted(lock.kernels, key=sort_key):
        lines += ["", *_block(kernel, taken.of(kernel))]
    if tail:
        lines += ["", *tail]
    return "\n".join(lines) + "\n"


def _block(kernel: LockedKernel, comments: _Comments) -> Iterator[str]:
    yield from comments.above.get("", ())
    yield f"[[kernel]]{comments.beside.get('', '')}"
    yield from _key(comments, "repo-id", _quoted(kernel.repo_id))
    if kernel.requirement is not None:
        stated = str(kernel.requirement).removeprefix(kernel.repo_id) or "*"
        yield from _key(comments, "requirement", _quoted(stated))
    if kernel.version is not None:
        yield from _key(comments, "version", str(kernel.version))
    yield from _key(comments, "commit", _quoted(kernel.commit))
    if kernel.dependencies:
        items = ", ".join(_quoted(item) for item in sorted(kernel.dependencies))
        yield from _key(comments, "dependencies", f"[{items}]")
    yield ""
    yield from comments.above.get("variants/", ())
    yield f"[kernel.variants]{comments.beside.get('variants/', '')}"
    for name, digest in sorted(kernel.variants.items()):
        yield from _key(comments, f"variants/{name}", _quoted(digest))


def _key(comments: _Comments, name: str, value: str) -> Iterator[str]:
    yield from comments.above.get(name, ())
    key = name.rpartition("/")[2]
    key = key if _BARE.fullmatch(key) else _quoted(key)
    yield f"{key} = {value}{comments.beside.get(name, '')}"


def _quoted(text: str) -> str:
    """A TOML basic string: JSON's escapes are among TOML's."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


class _Taken:
    """Gives each kernel the comments of its old block: same commit first, then same repository."""

    def __init__(self, blocks: list[_Comments]) -> None:
        self._blocks = blocks

    def of(self, kernel: LockedKernel) -> _Comments:
        for wanted in (("repo-id", "commit"), ("repo-id", "version"), ("repo-id",)):
            mine = {"repo-id": kernel.repo_id, "commit": kernel.commit}
            mine["version"] = str(kernel.version)
            for block in self._blocks:
                if all(block.facts.get(key) == mine[key] for key in wanted):
                    self._blocks.remove(block)
                    return block
        return _Comments()


def _collect(text: str) -> tuple[_Comments, list[_Comments], list[str]]:
    head = _Comments()
    blocks: list[_Comments] = []
    current, prefix = head, ""
    pending: list[str] = []
    for raw in text.split("\n"):
        line = _CONTROL.sub("", raw).rstrip()  # TOML has none of them in comments
        stripped = line.strip()
        if stripped.startswith("#"):
            pending.append(stripped)
        elif stripped.startswith("[") and not _is_inside_list(stripped):
            if stripped.startswith("[["):
                current, prefix, name = _Comments(), "", ""
                blocks.append(current)
            else:
                prefix = name = "variants/"
            _attach(current, name, line, pending)
            pending = []
        elif (match := _KEY.match(line)) is not None:
            key = match["key"].strip("\"'")
            current.facts.setdefault(key, _value(line[match.end() :]))
            _attach(current, prefix + key, line, pending)
            pending = []
        elif (comment := _trailing(line)) is not None:
            pending.append(comment.strip())
    return head, blocks, pending


def _is_inside_list(stripped: str) -> bool:
    """An item of a list that spans lines, such as `["a"],`, and no header of a table."""
    return not re.match(r"\[\[?\s*[A-Za-z]", stripped)


def _attach(comments: _Comments, name: str, line: str, pending: Iterable[str]) -> None:
    if lines := list(pending):
        comments.above.setdefault(name, []).extend(lines)
    if (comment := _trailing(line)) is not None and name not in comments.beside:
        comments.beside[name] = f"  {comment}"


def _trailing(line: str) -> str | None:
    position = 0
    while (match := _TOKEN.match(line, position)) is not None:
        position = match.end()
    return line[position:].rstrip() if line.startswith("#", position) else None


def _value(text: str) -> str:
    return text.partition("#")[0].strip().strip("\"'")
