"""Parse Python source of strangers: no execution, and no warnings about its style."""

from __future__ import annotations

import ast
import platform
import warnings
from pathlib import Path

from kernelhub.errors import InputError, Problem


def parse_source(source: str | bytes, name: str = "<source>") -> ast.Module:
    """The syntax tree of a module.

    Raises:
        SyntaxError: it does not parse with this interpreter's grammar.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(source, filename=name)
        except (ValueError, RecursionError, MemoryError) as error:  # null bytes, endless nesting
            raise SyntaxError(str(error) or type(error).__name__) from error


def source_problems(file: Path, name: str) -> list[Problem]:
    """Why a file is no Python source, at most one reason; `name` is what the reason calls it.

    Raises:
        InputError: the file cannot be read.
    """
    try:
        parse_source(file.read_bytes(), name)
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}") from error
    except SyntaxError as error:
        problem = Problem(
            path=name,
            line=error.lineno,
            message=f"no Python source: {error.msg}",
            hint=f"parsed as Python {platform.python_version()}; text is UTF-8",
            code="syntax",
        )
        return [problem]
    return []


def public_definitions(source: bytes) -> set[str]:
    """Names without a leading underscore that a module defines at its top level, by no import.

    Raises:
        SyntaxError: it does not parse.
    """
    names: set[str] = set()
    for node in parse_source(source).body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            stored = (part for part in ast.walk(node) if isinstance(part, ast.Name))
            names |= {part.id for part in stored if isinstance(part.ctx, ast.Store)}
    return {name for name in names if not name.startswith("_")}
