"""Rules of `__all__`: a kernel says what is public, and defines it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kernelhub.errors import Problem

from .source import Module, PackageSource, Subject

INIT = "__init__.py"


def find(subject: Subject) -> Iterator[Problem]:
    """`__all__` of each package and the names in it."""
    for package in subject.packages:
        module = package.module(INIT)
        if module is not None and module.tree is not None:
            yield from _faults(package, module, module.tree)


def _faults(package: PackageSource, module: Module, tree: ast.Module) -> Iterator[Problem]:
    assigned = [node for node in tree.body if _assigns_all(node)]
    if not assigned:
        yield Problem(
            path=module.path,
            line=1,
            message="has no __all__",
            hint='the public functions of a kernel are those in __all__ = ["name", ...]',
            code="missing-all",
        )
        return
    known = defined(tree) | _submodules(package)
    for node in assigned:
        names = _literal(node)
        if names is None:
            yield Problem(
                path=module.path,
                line=node.lineno,
                message="__all__ is computed; its names were not checked",
                code="dynamic-all",
            )
            continue
        for name in names:
            if name.value not in known and "*" not in known:
                yield Problem(
                    path=module.path,
                    line=name.lineno,
                    column=name.col_offset + 1,
                    message=f"__all__ names {name.value!r}, which the package does not define",
                    hint="define or import it, or take it out of __all__",
                    code="undefined-export",
                )


def _assigns_all(node: ast.stmt) -> bool:
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, (ast.AnnAssign, ast.AugAssign)):
        targets = [node.target]
    else:
        return False
    return any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets)


def _literal(node: ast.stmt) -> list[ast.Constant] | None:
    value = getattr(node, "value", None)
    if not isinstance(value, (ast.List, ast.Tuple)):
        return None
    names = [item for item in value.elts if isinstance(item, ast.Constant)]
    if len(names) != len(value.elts) or any(not isinstance(name.value, str) for name in names):
        return None
    return names


def defined(tree: ast.Module) -> set[str]:
    """Names that the module's own scope binds; "*" where a star import binds unknown ones."""
    found: set[str] = set()
    pending: list[ast.AST] = list(tree.body)
    while pending:
        node = pending.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
            found |= _declared_global(node)
            continue  # what else is inside is bound there
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            found.update(alias.asname or alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, (ast.MatchAs, ast.MatchStar)) and node.name:
            found.add(node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            found.add(node.rest)
        elif type(node).__name__ == "TypeAlias":  # Python 3.12
            found.add(node.name.id)  # type: ignore[attr-defined]
        pending.extend(ast.iter_child_nodes(node))
    return found | ({"*"} if "__getattr__" in found else set())


def _declared_global(function: ast.AST) -> set[str]:
    """Names that a function or class binds in the module with a `global` statement."""
    statements = (node for node in ast.walk(function) if isinstance(node, ast.Global))
    return {name for statement in statements for name in statement.names}


def _submodules(package: PackageSource) -> set[str]:
    return {module.name.removesuffix(".py").removesuffix("/__init__") for module in package.modules}
