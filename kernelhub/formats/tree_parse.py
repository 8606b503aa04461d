"""Text -> tree, against a closed grammar. Never executes anything.

    module     = docstring? (NAME "=" literal)* "def" "choose" "(" names ")" ":" node
    node       = "return" "(" int, ... ")"
               | "if" test ":" node ("elif" test ":" node)* "else" ":" node
    test       = product "<=" number ("*" factor)*  |  NAME "in" "(" literal, ... ")"
    product    = factor ("*" factor)*
    factor     = NAME | "-" "(" "-" NAME "//" int ")"

Two steps, so that no text can exhaust the parser: `tree_scan` admits only the tokens of this
grammar, few brackets deep and of bounded size; what passes goes to `ast.parse` and is read node by
node.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from kernelhub.errors import FormatError, Problem

from .tree_model import (
    MAX_DEPTH,
    SCHEMA,
    Categorical,
    DeviceFacts,
    Factor,
    Leaf,
    Node,
    Numeric,
    Place,
    Split,
    Tiles,
    Tree,
    faults_of,
)
from .tree_scan import Refused, scan

_FIELDS = ("SCHEMA", "KERNEL", "DEVICE", "TOOLS", "SOURCE", "FEATURES", "CONFIGS")
_DEVICE = tuple(DeviceFacts.__dataclass_fields__)


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
        scan(text)
        tree = _read(ast.parse(text), lines)
    except Refused as refused:
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


def _read(module: ast.Module, lines: dict[Place, int]) -> Tree:
    body = list(module.body)
    if body and isinstance(body[0], ast.Expr) and isinstance(_constant(body[0].value), str):
        body = body[1:]
    if not body or not isinstance(body[-1], ast.FunctionDef):
        raise Refused("a tree ends with its function `choose`", _line(body[-1]) if body else 1)
    fields = _fields(body[:-1], lines)
    if type(fields["SCHEMA"]) is not int or fields["SCHEMA"] != SCHEMA:
        raise Refused(f"schema {fields['SCHEMA']!r} is not {SCHEMA}, the one known here", 1)
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
        raise Refused(f"missing: {', '.join(missing)}", 1)
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
        first, *rest = _operands(right)
        threshold = _literal(first)
        if type(threshold) in (int, float):
            return Numeric(_product(_operands(left)), threshold, _product(rest))
    raise _refusal(node, "a test is `factors <= number * factors` or `name in (literals)`")


def _operands(node: ast.expr) -> list[ast.expr]:
    operands: list[ast.expr] = []
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        operands.append(node.right)
        node = node.left
    return [node, *reversed(operands)]


def _product(nodes: list[ast.expr]) -> tuple[Factor, ...]:
    return tuple(_factor(node) for node in nodes)


def _factor(node: ast.expr) -> Factor:
    match node:
        case ast.Name(id=name):
            return name
        case ast.UnaryOp(
            op=ast.USub(),
            operand=ast.BinOp(
                left=ast.UnaryOp(op=ast.USub(), operand=ast.Name(id=name)),
                op=ast.FloorDiv(),
                right=ast.Constant(value=block),
            ),
        ) if isinstance(block, int):
            return Tiles(name, block)
    raise _refusal(node, "a product consists of features and of tile counts, -(-M // 128)")


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
        raise Refused(f"DEVICE must have {', '.join(_DEVICE)}", 1)
    return DeviceFacts(
        name=_text(value["name"], "DEVICE name"),
        arch=_text(value["arch"], "DEVICE arch"),
        sm_count=value["sm_count"],
        memory=value["memory"],
        shared_memory=value["shared_memory"],
    )


def _configs(value: Any) -> tuple[dict[str, Any], ...]:
    if not isinstance(value, tuple) or not all(isinstance(config, dict) for config in value):
        raise Refused("CONFIGS must be a tuple of mappings", 1)
    return value


def _texts(value: Any, what: str) -> dict[str, str]:
    if not isinstance(value, dict):
        raise Refused(f"{what} must be a mapping", 1)
    return {name: _text(item, what) for name, item in value.items()}


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise Refused(f"{what} must hold strings", 1)
    return value


def _constant(node: ast.expr) -> Any:
    return node.value if isinstance(node, ast.Constant) else None


def _line(node: ast.AST) -> int:
    return int(getattr(node, "lineno", 1))


def _refusal(node: ast.AST, message: str) -> Refused:
    return Refused(message, _line(node))
