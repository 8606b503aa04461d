"""Text -> tree, against a closed grammar. Never executes anything.

    module     = docstring? (NAME "=" literal)* "def" "choose" "(" names ")" ":" node
    node       = "return" "(" int, ... ")"
               | "if" test ":" node ("elif" test ":" node)* "else" ":" node
    test       = product "<=" number ("*" NAME)*  |  NAME "in" "(" literal, ... ")"
    product    = NAME ("*" NAME)*

Two steps, so that no text can exhaust the parser: `_scan` admits only the tokens of this grammar,
few brackets deep and of bounded size; what passes goes to `ast.parse` and is read node by node.
"""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Iterator
from typing import Any

from kernelhub.errors import FormatError, Problem

from .tree_model import (
    MAX_DEPTH,
    MAX_FACTORS,
    MAX_NODES,
    SCHEMA,
    Categorical,
    DeviceFacts,
    Leaf,
    Node,
    Numeric,
    Place,
    Split,
    Tree,
    faults_of,
)

MAX_BYTES = 512 * 1024
_FIELDS = ("SCHEMA", "KERNEL", "DEVICE", "TOOLS", "SOURCE", "FEATURES", "CONFIGS")
_DEVICE = tuple(DeviceFacts.__dataclass_fields__)
_MAX_BRACKETS = 3
_OWN = {"def", "if", "elif", "else", "return", "in", "True", "False", "None"}
_FOREIGN = frozenset(keyword.kwlist) - _OWN
# What `ascii` writes; another one would make Python warn.
_ESCAPE = r"""\\(?:["'\\nrt]|x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})"""
_TOKEN = re.compile(
    r"""(?P<space>[ ]+|\n)|(?P<comment>\#[^\n]*)
    |(?P<doc>\"\"\"[^"\\]*\"\"\")
    |(?<!\w)(?P<string>"(?:[^"\\\n]|ESCAPE)*"|'(?:[^'\\\n]|ESCAPE)*')
    |(?P<number>(?:\d[\d.]*(?:e[+-]?\d+)?)(?![\w.]))
    |(?P<name>[A-Za-z_]\w*)
    |(?P<open>[(\[{])|(?P<close>[)\]}])|(?P<operator><=|[=*:,-])""".replace("ESCAPE", _ESCAPE),
    re.VERBOSE | re.ASCII,
)


def parse(text: str, path: str) -> Tree:
    """Read a tree module.

    Args:
        text: the module's text.
        path: its name in error messages.

    Raises:
        FormatError: the text is not a tree module; each fault with its line.
    """
    text = text.replace("\r\n", "\n")
    lines: dict[Place, int] = {}
    try:
        _scan(text)
        tree = _read(ast.parse(text), lines)
    except _Refused as refused:
        raise FormatError(path, [refused.problem(path)]) from None
    except SyntaxError as error:
        problem = Problem(message=str(error.msg), path=path, line=error.lineno)
        raise FormatError(path, [problem]) from None
    except (RecursionError, MemoryError, ValueError):
        raise FormatError(path, [Problem(message="too deep or too large", path=path)]) from None
    problems = [
        Problem(message=_placed(place, fault), path=path, line=lines.get(place))
        for place, fault in faults_of(tree)
    ]
    if problems:
        raise FormatError(path, problems)
    return tree


def _placed(place: Place, fault: str) -> str:
    return fault if isinstance(place, int) else f"{place}: {fault}"


class _Refused(Exception):
    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line

    def problem(self, path: str) -> Problem:
        return Problem(message=str(self), path=path, line=self.line)


def _scan(text: str) -> None:
    """Refuse every token that no tree has, before anything recursive sees the text."""
    if len(text) > MAX_BYTES or len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise _Refused(f"a tree has at most {MAX_BYTES} bytes", 1)
    if "\r" in text:  # a line break to Python, inside a comment to the tokens below
        raise _Refused("a carriage return does not belong in a tree", 1)
    position, line, depth, branches = 0, 1, 0, 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise _Refused(f"{text[position]!r} does not belong in a tree", line)
        found, kind = match[0], match.lastgroup
        depth += (kind == "open") - (kind == "close")
        branches += found in ("if", "elif")
        if kind == "name" and found in _FOREIGN:
            raise _Refused(f"{found!r} does not belong in a tree", line)
        if kind == "number" and len(found) > 32:
            raise _Refused("this number is too long", line)
        if found == "-" and not text[match.end() : match.end() + 1].isdigit():
            raise _Refused("'-' belongs in front of a number", line)
        if depth > _MAX_BRACKETS or branches > MAX_NODES // 2:
            raise _Refused("too deep or too large", line)
        line += found.count("\n")
        position = match.end()
    if any(statement.count("*") > 2 * MAX_FACTORS for statement in text.split("\n")):
        raise _Refused("a product has too many factors", 1)


def _read(module: ast.Module, lines: dict[Place, int]) -> Tree:
    body = list(module.body)
    if body and isinstance(body[0], ast.Expr) and isinstance(_constant(body[0].value), str):
        body = body[1:]
    if not body or not isinstance(body[-1], ast.FunctionDef):
        raise _Refused("a tree ends with its function `choose`", _line(body[-1]) if body else 1)
    fields = _fields(body[:-1], lines)
    if type(fields["SCHEMA"]) is not int or fields["SCHEMA"] != SCHEMA:
        raise _Refused(f"schema {fields['SCHEMA']!r} is not {SCHEMA}, the one known here", 1)
    features = _texts(fields["FEATURES"], "FEATURES")
    _check_signature(body[-1], tuple(features))
    return Tree(
        kernel=_text(fields["KERNEL"], "KERNEL"),
        device=_device(fields["DEVICE"]),
        tools=_texts(fields["TOOLS"], "TOOLS"),
        source_hash=_text(fields["SOURCE"], "SOURCE"),
        features=features,
        configs=_configs(fields["CONFIGS"]),
        root=_node(body[-1].body, body[-1], lines, 0),
    )


def _fields(statements: list[ast.stmt], lines: dict[Place, int]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for statement in statements:
        target = statement.targets[0] if isinstance(statement, ast.Assign) else None
        if not isinstance(statement, ast.Assign) or not isinstance(target, ast.Name):
            raise _refusal(statement, "only `NAME = literal` may stand here")
        if len(statement.targets) != 1 or target.id not in _FIELDS or target.id in fields:
            raise _refusal(statement, f"{target.id!r} is no field of a tree, or is given twice")
        lines[target.id] = _line(statement)
        fields[target.id] = _literal(statement.value)
    missing = [name for name in _FIELDS if name not in fields]
    if missing:
        raise _Refused(f"missing: {', '.join(missing)}", 1)
    return fields


def _check_signature(function: ast.FunctionDef, features: tuple[str, ...]) -> None:
    arguments = function.args
    names = tuple(argument.arg for argument in arguments.args)
    plain = ast.arguments([], [], None, [], [], None, [])
    plain.args = [ast.arg(name) for name in names]
    extras = (*function.decorator_list, *getattr(function, "type_params", ()))
    if function.name != "choose" or extras or function.returns is not None:
        raise _refusal(function, "the function of a tree is a plain `def choose(...)`")
    if ast.dump(arguments) != ast.dump(plain) or names != features:
        raise _refusal(function, "`choose` takes exactly the names in FEATURES, in their order")


def _node(body: list[ast.stmt], parent: ast.AST, lines: dict[Place, int], depth: int) -> Node:
    if len(body) != 1:
        raise _refusal(parent, "one `if ... else` or one `return` belongs below this")
    statement = body[0]
    # Parents first, `yes` before `no`: the order of `nodes_of`.
    lines[len(lines) - len(_FIELDS)] = _line(statement)
    if depth > MAX_DEPTH:
        raise _refusal(statement, f"a tree has at most {MAX_DEPTH} levels")
    if isinstance(statement, ast.Return):
        ranking = None if statement.value is None else _literal(statement.value)
        if not isinstance(ranking, tuple):
            raise _refusal(statement, "a leaf returns a tuple of configuration indices")
        return Leaf(ranking)
    if not isinstance(statement, ast.If):
        raise _refusal(statement, "only `if` and `return` may stand here")
    test = _test(statement.test)
    yes = _node(statement.body, statement, lines, depth + 1)
    return Split(test, yes, _node(statement.orelse, statement, lines, depth + 1))


def _test(node: ast.expr) -> Numeric | Categorical:
    if not isinstance(node, ast.Compare) or len(node.ops) != 1:
        raise _refusal(node, "a test is one `<=` or one `in`")
    left, operator, right = node.left, node.ops[0], node.comparators[0]
    if isinstance(operator, ast.In) and isinstance(left, ast.Name):
        values = _literal(right)
        if isinstance(values, tuple):
            return Categorical(left.id, values)
    if isinstance(operator, ast.LtE):
        first, *rest = _factors(right)
        threshold = _literal(first)
        if type(threshold) in (int, float):
            return Numeric(_names(_factors(left)), threshold, _names(rest))
    raise _refusal(node, "a test is `names <= number * names` or `name in (literals)`")


def _factors(node: ast.expr) -> list[ast.expr]:
    factors: list[ast.expr] = []
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        factors.append(node.right)
        node = node.left
    return [node, *reversed(factors)]


def _names(nodes: list[ast.expr]) -> tuple[str, ...]:
    names: list[str] = []
    for node in nodes:
        if not isinstance(node, ast.Name):
            raise _refusal(node, "a product consists of feature names")
        names.append(node.id)
    return tuple(names)


def _literal(node: ast.expr) -> Any:
    """A literal: number, string, True, False, None, or a tuple or mapping of them."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _constant(node.operand)
        if type(value) in (int, float):
            return -value
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float | str | None):
        return node.value
    if isinstance(node, ast.Tuple):
        return tuple(_literal(item) for item in node.elts)
    if isinstance(node, ast.Dict):
        return dict(_items(node))
    raise _refusal(node, "only literals may stand here")


def _items(node: ast.Dict) -> Iterator[tuple[str, Any]]:
    seen: set[str] = set()
    for key, value in zip(node.keys, node.values, strict=True):
        name = None if key is None else _constant(key)
        if not isinstance(name, str) or name in seen:
            raise _refusal(node, "keys must be different strings")
        seen.add(name)
        yield name, _literal(value)


def _device(value: Any) -> DeviceFacts:
    if not isinstance(value, dict) or set(value) != set(_DEVICE):
        raise _Refused(f"DEVICE must have {', '.join(_DEVICE)}", 1)
    return DeviceFacts(
        name=_text(value["name"], "DEVICE name"),
        arch=_text(value["arch"], "DEVICE arch"),
        sm_count=value["sm_count"],
        memory=value["memory"],
        shared_memory=value["shared_memory"],
    )


def _configs(value: Any) -> tuple[dict[str, Any], ...]:
    if not isinstance(value, tuple) or not all(isinstance(config, dict) for config in value):
        raise _Refused("CONFIGS must be a tuple of mappings", 1)
    return value


def _texts(value: Any, what: str) -> dict[str, str]:
    if not isinstance(value, dict):
        raise _Refused(f"{what} must be a mapping", 1)
    return {name: _text(item, what) for name, item in value.items()}


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise _Refused(f"{what} must hold strings", 1)
    return value


def _constant(node: ast.expr) -> Any:
    return node.value if isinstance(node, ast.Constant) else None


def _line(node: ast.AST) -> int:
    return int(getattr(node, "lineno", 1))


def _refusal(node: ast.AST, message: str) -> _Refused:
    return _Refused(message, _line(node))
