"""Rule `op-namespace`: torch operators are registered in the namespace of this build.

Two versions of a kernel live in one process, so an operator's name starts with a namespace that the
build makes. HF's builder checks the decorators the same way: a direct call of
`add_op_namespace_prefix` as first argument, of the function that `._ops` exports.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kernelhub.errors import Problem

from .names import aliases, resolve
from .source import Module, Subject

DECORATORS = frozenset(
    {"custom_op", "triton_op", "register_kernel", "register_fake", "register_vmap",
     "register_torch_dispatch", "register_autograd", "register_autocast"}
)  # fmt: skip
# These also take a Library object, which is checked where it is made.
FUNCTIONS = frozenset({"define", "impl", "impl_abstract", "Library", "fallthrough_kernel"})
PREFIX = "add_op_namespace_prefix"
_HINT = f'from ._ops import {PREFIX}, then {PREFIX}("name") as first argument'


def find(subject: Subject) -> Iterator[Problem]:
    """Every registration in the torch packages."""
    for package in subject.packages:
        if package.framework == "torch":
            for module in package.modules:
                yield from _faults(module)
                yield from _uses(package.name, module)


def _faults(module: Module) -> Iterator[Problem]:
    if module.tree is None:
        return
    known = aliases(module.tree)
    decorators = {
        id(decorator)
        for node in ast.walk(module.tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        for decorator in node.decorator_list
    }
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.Call):
            continue
        dotted = resolve(node.func, known)
        name = dotted.rpartition(".")[2]
        ours = dotted.startswith("torch.library.")
        named = name in DECORATORS and (ours or (id(node) in decorators and dotted == name))
        first = _first(node)
        if first is None or _is_prefixed(first):
            continue
        if named or (ours and name in FUNCTIONS and _is_text(first)):
            yield Problem(
                path=module.path,
                line=node.lineno,
                column=node.col_offset + 1,
                message=f"{name} registers {ast.unparse(first)[:60]} outside the namespace of "
                "this build",
                hint=_HINT,
                code="op-namespace",
            )


def _uses(package: str, module: Module) -> Iterator[Problem]:
    """Operators that are looked up in a namespace called after the package."""
    if module.tree is None:
        return
    known = aliases(module.tree)
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.Attribute):
            continue
        if resolve(node, known) == f"torch.ops.{package}":
            yield Problem(
                path=module.path,
                line=node.lineno,
                column=node.col_offset + 1,
                message=f"torch.ops.{package} is not the namespace of this build",
                hint="from ._ops import ops, then ops.name(...)",
                code="op-namespace",
            )


def _first(call: ast.Call) -> ast.expr | None:
    if call.args:
        return call.args[0]
    named = {keyword.arg: keyword.value for keyword in call.keywords}
    return next((named[key] for key in ("name", "op", "qualname", "ns") if key in named), None)


def _is_prefixed(node: ast.expr) -> bool:
    if not isinstance(node, ast.Call):
        return False
    return resolve(node.func, {}).rpartition(".")[2] == PREFIX


def _is_text(node: ast.expr) -> bool:
    """A name that is written down or put together, not an object such as a Library."""
    return isinstance(node, (ast.JoinedStr, ast.BinOp)) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
