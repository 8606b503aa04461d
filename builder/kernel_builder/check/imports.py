"""Rule `absolute-import`: a package reaches its own modules by relative imports only.

A loaded kernel has another name than its folder, one for each version, so that versions live side
by side; an import of the folder's name finds nothing, or somebody else's package.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kernelhub.errors import Problem

from . import fix
from .source import Module, PackageSource, Subject


def find(subject: Subject) -> Iterator[Problem]:
    """Every import of a package's own name, wherever it stands."""
    for package in subject.packages:
        for module in package.modules:
            yield from _faults(package, module)


def _faults(package: PackageSource, module: Module) -> Iterator[Problem]:
    if module.tree is None:
        return
    certain = fix.rewritable(module, package.name)
    for node, name in own_imports(module.tree, package.name):
        yield Problem(
            path=module.path,
            line=node.lineno,
            column=node.col_offset + 1,
            message=f"imports {name} by the package's own name",
            hint=(
                "write a relative import, or run `kernel-builder check --fix`"
                if node in certain
                else "write a relative import; this one cannot be rewritten automatically"
            ),
            code="absolute-import",
        )


def own_imports(
    tree: ast.Module, package: str
) -> Iterator[tuple[ast.Import | ast.ImportFrom, str]]:
    """Import statements that name `package` absolutely, each with the module that it names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == package:
                    yield node, alias.name
        elif isinstance(node, ast.ImportFrom) and fix.names_package(node, package):
            yield node, node.module or package
