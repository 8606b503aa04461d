"""What a name in a module stands for, as far as its imports say."""

from __future__ import annotations

import ast


def aliases(tree: ast.Module) -> dict[str, str]:
    """Names that absolute imports bind, each with the dotted name that it stands for."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                bound = alias.asname or alias.name.split(".")[0]
                found[bound] = alias.name if alias.asname else bound
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            for alias in node.names:
                found[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return found


def resolve(node: ast.expr, known: dict[str, str]) -> str:
    """The dotted name of `a.b.c` with `a` looked up in `known`; "" for other expressions."""
    if isinstance(node, ast.Attribute):
        value = resolve(node.value, known)
        return f"{value}.{node.attr}" if value else ""
    return known.get(node.id, node.id) if isinstance(node, ast.Name) else ""
