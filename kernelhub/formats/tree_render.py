"""A tree as the text of a small Python module: deterministic, and made to be read and diffed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from kernelhub.errors import FormatError, Problem

from .tree_model import (
    SCHEMA,
    Categorical,
    Config,
    Factor,
    Literal,
    Node,
    Numeric,
    Split,
    Tiles,
    Tree,
    faults_of,
)

_INDENT = "    "


def render(tree: Tree) -> str:
    """The text of the tree's module; `parse` of it gives the tree again.

    Raises:
        FormatError: the tree breaks a rule (see `tree_model.faults_of`); all faults are listed.
    """
    problems = [Problem(message=f"{place}: {fault}") for place, fault in faults_of(tree)]
    if problems:
        raise FormatError(f"tree of {tree.kernel}", problems)
    return "\n".join([*_head(tree), "", "", *_function(tree), ""])


def test_text(test: Numeric | Categorical) -> str:
    """The test as Python: "M * N <= 4096 * K", "-(-M // 128) * -(-N // 256) <= 264"."""
    if isinstance(test, Numeric):
        left = " * ".join(_factor(factor) for factor in test.left)
        right = " * ".join([_literal(test.threshold), *(_factor(f) for f in test.right)])
        return f"{left} <= {right}"
    return f"{test.feature} in {_tuple(_literal(value) for value in test.values)}"


def config_text(config: Config) -> str:
    """A configuration in one line: "BLOCK=128 num_warps=4"."""
    return " ".join(f"{name}={value}" for name, value in config.items())


def _head(tree: Tree) -> Iterator[str]:
    device = tree.device
    yield f'"""Which configuration {tree.kernel} runs with on {_plain(device.name)}.'
    yield ""
    yield "Generated from measurements, which lie beside it. Read as data, never executed."
    yield '"""'
    yield ""
    yield f"SCHEMA = {SCHEMA}"
    yield f"KERNEL = {_literal(tree.kernel)}"
    facts = {name: getattr(device, name) for name in device.__dataclass_fields__}
    yield from _mapping("DEVICE", facts)
    yield from _mapping("TOOLS", dict(sorted(tree.tools.items())))
    yield f"SOURCE = {_literal(tree.source_hash)}"
    yield from _mapping("FEATURES", tree.features)
    yield "CONFIGS = ("
    for index, config in enumerate(tree.configs):
        items = ", ".join(f"{_literal(k)}: {_literal(v)}" for k, v in config.items())
        yield f"{_INDENT}{{{items}}},  # {index}"
    yield ")"


def _mapping(name: str, values: Mapping[str, Literal]) -> Iterator[str]:
    yield f"{name} = {{"
    for key, value in values.items():
        yield f"{_INDENT}{_literal(key)}: {_literal(value)},"
    yield "}"


def _function(tree: Tree) -> Iterator[str]:
    yield f"def choose({', '.join(tree.features)}):"
    yield from _node(tree.root, tree.configs, _INDENT)


def _node(node: Node, configs: tuple[Config, ...], indent: str) -> Iterator[str]:
    word = "if"
    while isinstance(node, Split):
        yield f"{indent}{word} {test_text(node.test)}:"
        yield from _node(node.yes, configs, indent + _INDENT)
        node, word = node.no, "elif"
    if word == "elif":
        yield f"{indent}else:"
        indent += _INDENT
    best = _plain(config_text(configs[node.ranking[0]]))
    yield f"{indent}return {_tuple(str(i) for i in node.ranking)}  # {best}"


def _factor(factor: Factor) -> str:
    # Python's own way to divide integers upwards, exactly.
    return f"-(-{factor.feature} // {factor.block})" if isinstance(factor, Tiles) else factor


def _tuple(items: Iterable[str]) -> str:
    parts = list(items)
    return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"


def _literal(value: Literal) -> str:
    if not isinstance(value, str):
        return repr(value)
    text = ascii(value)
    return f'"{text[1:-1]}"' if text[0] == "'" and '"' not in text else text


def _plain(text: str) -> str:
    """Text for a comment or docstring: one line of printable ASCII, without quotes."""
    return "".join(c if " " <= c <= "~" and c not in "\"'\\" else "?" for c in text)
