"""Rule `missing-import`: what a relative import names is there.

Resolved from the source alone. A module that binds names in ways that cannot be read off it (a star
import, `__getattr__`, `globals()`) may define anything.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kernel_builder.project import OPS_MODULE
from kernelhub.errors import Problem

from .exports import defined
from .guards import unguarded
from .names import aliases, resolve
from .source import Module, PackageSource, Subject

# What every module has, and what the build's _ops.py defines.
_IMPLICIT = frozenset(
    {"__name__", "__doc__", "__file__", "__path__", "__package__", "__spec__", "__loader__",
     "__dict__", "__builtins__", "__cached__"}
)  # fmt: skip
_UNSEEN = frozenset({"globals", "vars", "locals", "exec", "setattr", "sys.modules"})
_OPS_NAMES = frozenset({"ops", "add_op_namespace_prefix"})


def find(subject: Subject) -> Iterator[Problem]:
    """Every relative import of the packages that would fail."""
    for package in subject.packages:
        for module in package.modules:
            if module.tree is not None:
                yield from _faults(package, module, module.tree)


def _faults(package: PackageSource, module: Module, tree: ast.Module) -> Iterator[Problem]:
    for node in unguarded(tree.body):
        if isinstance(node, ast.ImportFrom) and node.level:
            for message in _missing(package, module, node):
                yield Problem(
                    path=module.path,
                    line=node.lineno,
                    column=node.col_offset + 1,
                    message=message,
                    hint="correct the name, or add what it names to the package",
                    code="missing-import",
                )


def _missing(package: PackageSource, module: Module, node: ast.ImportFrom) -> Iterator[str]:
    written = "." * node.level + (node.module or "")
    parts = module.name.split("/")[:-1]
    up = node.level - 1
    if up > len(parts):
        yield f"{written} lies outside the package"
        return
    target = "/".join([*parts[: len(parts) - up], *(node.module or "").split(".")]).strip("/")
    if not _is_module(package, target):
        yield f"imports {written}, and the package has no module {target.replace('/', '.')}"
        return
    names = _names(package, target)
    if names is None:
        return
    for alias in node.names:
        inner = f"{target}/{alias.name}".strip("/")
        if alias.name != "*" and alias.name not in names and not _is_module(package, inner):
            yield f"imports {alias.name} from {written}, which does not define it"


def _is_module(package: PackageSource, place: str) -> bool:
    """Whether `a/b` is a module or a folder of the package; "" is the package itself."""
    if not place or (place == OPS_MODULE.removesuffix(".py") and package.framework == "torch"):
        return True
    return any(name == f"{place}.py" or name.startswith(f"{place}/") for name in package.files)


def _names(package: PackageSource, place: str) -> frozenset[str] | None:
    """Names that a module defines, None where they cannot be known."""
    if package.framework == "torch" and place == OPS_MODULE.removesuffix(".py"):
        return _OPS_NAMES | _IMPLICIT
    candidates = (f"{place}/__init__.py".lstrip("/"), f"{place}.py")
    file = next((name for name in candidates if name in package.files), None)
    if file is None:
        return _IMPLICIT  # a folder without __init__.py
    module = package.module(file)
    if module is None or module.tree is None:
        return None  # not read; other rules say so
    names = defined(module.tree)
    return None if "*" in names or _binds_unseen(module.tree) else frozenset(names | _IMPLICIT)


def _binds_unseen(tree: ast.Module) -> bool:
    """Whether the module may bind names that stand nowhere in it."""
    known = aliases(tree)
    nodes = (node for node in ast.walk(tree) if isinstance(node, (ast.Name, ast.Attribute)))
    return any(resolve(node, known) in _UNSEEN for node in nodes)
