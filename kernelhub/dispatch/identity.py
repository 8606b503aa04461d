"""Which source a tree was tuned for.

`source_hash` covers a kernel's own source and, recursively, the functions of its package that it
names, with the constants that they take from their modules. It does not cover decorators (a list
of configurations may grow), comments, blank lines, file paths or line numbers. It needs the
functions and their text, no GPU, and gives the same on every Python version.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import io
import re
import textwrap
import tokenize
from collections.abc import Callable, Iterable, Iterator
from typing import Any

_DEF = re.compile(r"^(async\s+)?def\s", re.MULTILINE)


def source_hash(function: Callable[..., Any], *, also: Iterable[Callable[..., Any]] = ()) -> str:
    """`sha256:<hex>` of a function and of what it names.

    Args:
        function: a plain function, or an object that wraps one as `.fn` (`@triton.jit`).
        also: further functions that belong to it, such as alternative implementations.

    Raises:
        OSError: the source text cannot be found.
    """
    texts: dict[str, str] = {}
    pending = [_unwrap(function), *map(_unwrap, also)]
    package = pending[0].__module__.partition(".")[0]
    while pending:
        current = pending.pop()
        name = f"{current.__module__.partition('.')[2]}.{current.__qualname__}"
        if name in texts:
            continue
        text = normalised(current)
        constants: list[str] = []
        for reference, value in _references(text, current):
            target = _function_of(value)
            if target is not None and target.__module__.partition(".")[0] == package:
                pending.append(target)
            elif target is None and _is_constant(value):
                constants.append(f"{reference}={_constant(value)!r}")
        texts[name] = "\n".join([text, *sorted(constants)])
    # Modules of a loaded kernel are named by content: only what is below the package counts.
    joined = "\0".join(f"{name}\0{texts[name]}" for name in sorted(texts))
    return "sha256:" + hashlib.sha256(joined.encode()).hexdigest()


def normalised(function: Callable[..., Any]) -> str:
    """The function's text from `def` on, without comments, blank lines and trailing blanks."""
    text = textwrap.dedent("".join(inspect.getsourcelines(function)[0]))
    match = _DEF.search(text)
    text = text[match.start() :] if match else text
    lines = text.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    return "\n".join(line.rstrip() for line in lines if line.strip())


def _unwrap(function: Any) -> Any:
    while not inspect.isfunction(function):
        inner = getattr(function, "fn", None) or getattr(function, "__wrapped__", None)
        if inner is None:
            raise OSError(f"{function!r} has no source text")
        function = inner
    return function


def _function_of(value: Any) -> Any:
    try:
        return _unwrap(value)
    except OSError:
        return None


def _references(text: str, function: Any) -> Iterator[tuple[str, Any]]:
    """Names and dotted names in the text that the function's module or closure resolves."""
    closure = inspect.getclosurevars(function).nonlocals
    scope = {**function.__globals__, **closure}
    for node in ast.walk(ast.parse(text)):
        names = _dotted(node)
        if names and names[0] in scope:
            value = scope[names[0]]
            for attribute in names[1:]:
                value = getattr(value, attribute, None)
            yield ".".join(names), value


def _dotted(node: ast.AST) -> tuple[str, ...]:
    if isinstance(node, ast.Name):
        return (node.id,)
    if isinstance(node, ast.Attribute):
        inner = _dotted(node.value)
        return (*inner, node.attr) if inner else ()
    return ()


def _is_constant(value: Any) -> bool:
    inner = _constant(value)
    return isinstance(inner, int | float | str | bool | tuple)


def _constant(value: Any) -> Any:
    return value.value if type(value).__name__ == "constexpr" else value
