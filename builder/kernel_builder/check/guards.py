"""Imports that fail where what they name is missing: those that nothing guards."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

_GUARDS = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})


def unguarded(body: Iterable[ast.stmt]) -> Iterator[ast.Import | ast.ImportFrom]:
    """Import statements at any depth, but for those in a try that catches ImportError and those
    that only type checkers read.
    """
    for node in body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield node
        elif isinstance(node, ast.Try) and any(_catches(handler) for handler in node.handlers):
            for part in (node.orelse, node.finalbody, *(h.body for h in node.handlers)):
                yield from unguarded(part)
        elif isinstance(node, ast.If) and _is_type_checking(node.test):
            yield from unguarded(node.orelse)
        else:
            for part in _bodies(node):
                yield from unguarded(part)


def _bodies(node: ast.AST) -> Iterator[list[ast.stmt]]:
    for field in ("body", "orelse", "finalbody"):
        part = getattr(node, field, None)
        if isinstance(part, list):
            yield part
    for field in ("handlers", "cases"):
        for part in getattr(node, field, []):
            yield part.body


def _catches(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(isinstance(kind, ast.Name) and kind.id in _GUARDS for kind in types)


def _is_type_checking(test: ast.expr) -> bool:
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )
