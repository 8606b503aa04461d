"""Rule `absolute-import`: a package reaches its own modules by relative imports only.

A loaded kernel has another name than its folder, one for each version, so that versions live side
by side; an import of the folder's name finds nothing, or somebody else's package.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kernelhub.errors import Problem

from . import fix
from .names import aliases, resolve
from .source import Module, PackageSource, Subject

_IMPORTERS = frozenset({"importlib.import_module", "__import__", "importlib.util.find_spec"})


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
    yield from _by_name(package, module, module.tree)


def _by_name(package: PackageSource, module: Module, tree: ast.Module) -> Iterator[Problem]:
    """Calls of `import_module` and `__import__` with the package's own name."""
    known = aliases(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and resolve(node.func, known) in _IMPORTERS and node.args:
            name = _leading_text(node.args[0])
            if name.split(".")[0] == package.name:
                yield Problem(
                    path=module.path,
                    line=node.lineno,
                    column=node.col_offset + 1,
                    message=f"imports {name} by the package's own name",
                    hint="write a relative import, or import_module(__package__ + ...): the loader "
                    "gives a kernel a name of its own",
                    code="absolute-import",
                )


def _leading_text(node: ast.expr) -> str:
    """The text that a literal, an f-string or a sum of texts begins with."""
    if isinstance(node, ast.JoinedStr) and node.values:
        return _leading_text(node.values[0])
    if isinstance(node, ast.BinOp):
        return _leading_text(node.left)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


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
