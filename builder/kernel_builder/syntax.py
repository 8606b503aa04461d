"""Parse Python source of strangers: no execution, and no warnings about its style."""

from __future__ import annotations

import ast
import warnings


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
