"""Rewriting a package's imports of itself to relative ones, where that is certain to be right.

Only the text of import statements and of uses of the package's name changes; everything else,
comments and layout included, stays byte for byte. Rewritten are

    from pkg.x import y              from .x import y
    from pkg import y                from . import y
    import pkg.x as z                from . import x as z
    import pkg.x  ...  pkg.x.f()     from . import x  ...  x.f()

the last only where the module uses the name `pkg` for nothing else and `x` not at all. What is not
certain is left to its author.
"""

from __future__ import annotations

import ast
import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from kernelhub.errors import StoreError

from .source import Module, PackageSource

_FROM = re.compile(r"(from(?:[ \t\f]|\\\r?\n)+)([\w.]+)", re.UNICODE)
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
Statement: TypeAlias = "ast.Import | ast.ImportFrom"


@dataclass(frozen=True, slots=True)
class _Edit:
    """Characters [start, end) of a text become `text`."""

    start: int
    end: int
    text: str


def repair_package(package: PackageSource) -> Iterator[str]:
    """Rewrite a package's modules in place; the project-relative names of those that changed.

    Raises:
        StoreError: a file cannot be written; those before it are rewritten, each whole.
    """
    for module in package.modules:
        text = rewrite(module, package.name)
        if text != module.text:
            _replace(package.folder / module.name, text.encode("utf-8"))
            yield module.path


def rewrite(module: Module, package: str) -> str:
    """The module's text with every certain rewrite done; the same text if there is none."""
    edits = [edit for group in _plan(module, package).values() for edit in group]
    text = module.text
    for edit in sorted(set(edits), key=lambda e: e.start, reverse=True):
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text if _parses(text) else module.text


def rewritable(module: Module, package: str) -> set[Statement]:
    """The import statements that `rewrite` changes."""
    plan = _plan(module, package)
    return set(plan) if rewrite(module, package) != module.text else set()


def _plan(module: Module, package: str) -> dict[Statement, list[_Edit]]:
    if module.tree is None or module.text.startswith("\ufeff"):
        return {}
    places = _Places(module.text)
    dots = "." * (module.depth + 1)
    plan: dict[Statement, list[_Edit]] = {}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom) and names_package(node, package):
            plan.update(_from_import(node, package, dots, places))
    plan.update(_imports_with_alias(module.tree, package, dots, places))
    plan.update(_plain_imports(module.tree, package, dots, places))
    return plan


def names_package(node: ast.ImportFrom, package: str) -> bool:
    """Whether it is `from pkg... import`, not a relative import."""
    return node.level == 0 and (node.module or "").split(".")[0] == package


def _from_import(
    node: ast.ImportFrom, package: str, dots: str, places: _Places
) -> dict[Statement, list[_Edit]]:
    start = places.at(node.lineno, node.col_offset)
    match = _FROM.match(places.text, start)
    if match is None or match[2] != node.module:
        return {}  # spaces around its dots, or other oddities
    rest = match[2][len(package) :].removeprefix(".")
    return {node: [_Edit(match.start(2), match.end(2), dots + rest)]}


def _imports_with_alias(
    tree: ast.Module, package: str, dots: str, places: _Places
) -> dict[Statement, list[_Edit]]:
    plan: dict[Statement, list[_Edit]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and len(node.names) == 1:
            alias = node.names[0]
            if alias.asname and alias.name.startswith(f"{package}."):
                plan[node] = [places.statement(node, _relative(alias.name, dots, alias.asname))]
    return plan


def _plain_imports(
    tree: ast.Module, package: str, dots: str, places: _Places
) -> dict[Statement, list[_Edit]]:
    """`import pkg.x` together with every use of `pkg` in the module, or nothing."""
    statements = [
        node
        for node in _module_level(tree.body)
        if isinstance(node, ast.Import)
        and len(node.names) == 1
        and node.names[0].asname is None
        and node.names[0].name.startswith(f"{package}.")
    ]
    imported = {node.names[0].name for node in statements}
    short = {name: name.rpartition(".")[2] for name in imported}
    if not imported or len(set(short.values())) != len(imported):
        return {}
    if _binds(tree, package, {id(node) for node in statements}):
        return {}
    if any(_binds(tree, name, set()) or _reads(tree, name) for name in short.values()):
        return {}
    uses = _uses(tree, package, imported)
    if uses is None or _in_annotations(tree, package):
        return {}
    edits = [places.span(node, short[name]) for node, name in uses]
    plan: dict[Statement, list[_Edit]] = {}
    for node in statements:
        plan[node] = [places.statement(node, _relative(node.names[0].name, dots, None)), *edits]
    return plan


def _relative(dotted: str, dots: str, asname: str | None) -> str:
    """`pkg.a.b` -> `from .a import b`, with ` as z` where the name differs."""
    parts = dotted.split(".")[1:]
    renamed = f" as {asname}" if asname and asname != parts[-1] else ""
    return f"from {dots}{'.'.join(parts[:-1])} import {parts[-1]}{renamed}"


def _module_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements that run in the module's own scope, inside `if` and `try` as well."""
    for node in body:
        yield node
        if isinstance(node, (ast.If, ast.Try)):
            yield from _module_level([*node.body, *node.orelse])
        if isinstance(node, ast.Try):
            yield from _module_level([*node.finalbody, *(s for h in node.handlers for s in h.body)])


def _uses(
    tree: ast.Module, package: str, imported: set[str]
) -> list[tuple[ast.Attribute, str]] | None:
    """Each `pkg.x` that is used, with the imported module; None if `pkg` has another use."""
    found: list[tuple[ast.Attribute, str]] = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute):
            continue
        dotted = _dotted(node)
        if dotted in imported and isinstance(node.ctx, ast.Load):
            found.append((node, dotted))
    known = {id(_root(node)) for node, _ in found}
    if any(
        isinstance(node, ast.Name) and node.id == package and id(node) not in known
        for node in ast.walk(tree)
    ):
        return None
    longest: dict[int, tuple[ast.Attribute, str]] = {}  # of `pkg.x.y`, not its part `pkg.x`
    for node, dotted in sorted(found, key=lambda pair: len(pair[1])):
        longest[id(_root(node))] = (node, dotted)
    return list(longest.values())


def _in_annotations(tree: ast.Module, package: str) -> bool:
    """Whether a quoted annotation may mean the package."""
    for node in ast.walk(tree):
        for field in ("annotation", "returns"):
            annotation = getattr(node, field, None)
            if annotation is None:
                continue
            for part in ast.walk(annotation):
                if isinstance(part, ast.Constant) and package in str(part.value):
                    return True
    return False


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "?"


def _root(node: ast.expr) -> ast.expr:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node


def _reads(tree: ast.Module, name: str) -> bool:
    return any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(tree))


def _binds(tree: ast.Module, name: str, but: set[int]) -> bool:
    """Whether anything in the module binds `name`, other than the statements in `but`."""
    for node in ast.walk(tree):
        if id(node) in but:
            continue
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            bound = {alias.asname or alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            bound = {node.name}
        elif isinstance(node, ast.arg):
            bound = {node.arg}
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            bound = {node.id}
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            bound = set(node.names)
        elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)):
            bound = {node.name} if node.name else set()
        elif isinstance(node, ast.MatchMapping):
            bound = {node.rest} if node.rest else set()
        else:
            continue
        if name in bound or "*" in bound:
            return True
    return False


class _Places:
    """Offsets in a text of what the syntax tree gives as line and UTF-8 column."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._lines = _LINE.findall(text)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))

    def at(self, line: int, column: int) -> int:
        before = self._lines[line - 1].encode("utf-8")[:column].decode("utf-8")
        return self._starts[line - 1] + len(before)

    def span(self, node: ast.expr, text: str) -> _Edit:
        assert node.end_lineno is not None and node.end_col_offset is not None  # noqa: S101, PT018
        start = self.at(node.lineno, node.col_offset)
        return _Edit(start, self.at(node.end_lineno, node.end_col_offset), text)

    def statement(self, node: ast.stmt, text: str) -> _Edit:
        assert node.end_lineno is not None and node.end_col_offset is not None  # noqa: S101, PT018
        start = self.at(node.lineno, node.col_offset)
        return _Edit(start, self.at(node.end_lineno, node.end_col_offset), text)


def _parses(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return True


def _replace(path: Path, data: bytes) -> None:
    """Write a file whole or not at all, with the permissions that it had."""
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            Path(name).chmod(path.stat().st_mode & 0o777)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise StoreError(
            f"cannot rewrite {path}: {error.strerror}", hint="the file is as it was"
        ) from error
