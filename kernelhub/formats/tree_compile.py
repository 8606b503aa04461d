"""A sound tree as a fast function, and as the path that one call takes through it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .tree_model import (
    Categorical,
    Factor,
    Leaf,
    Literal,
    Node,
    Numeric,
    Split,
    Tiles,
    Tree,
    product,
    used_features,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledTree:
    """A tree to ask.

    Attributes:
        tree: what it was made from.
        features: the features that `choose` takes, in the order of its arguments.
        choose: values of `features` -> indices into `tree.configs`, best first. Raises TypeError
            for a value that is not of the feature's kind.
    """

    tree: Tree
    features: tuple[str, ...]
    choose: Callable[..., tuple[int, ...]]


def compile_tree(tree: Tree) -> CompiledTree:
    """Generate the function from the model. The tree must be sound, as `parse` gives it."""
    features = used_features(tree)
    names = {feature: f"f{index}" for index, feature in enumerate(features)}
    constants: dict[str, Any] = {}
    body = "\n".join(_lines(tree.root, names, constants, " "))
    code = f"def choose({', '.join(names.values())}):\n{body}\n"
    namespace: dict[str, Any] = {"__builtins__": {}, **constants}
    # Generated from numbers and names of our own; no part of it is text that was received.
    exec(compile(code, f"<tree of {tree.kernel}>", "exec"), namespace)  # noqa: S102
    return CompiledTree(tree=tree, features=features, choose=namespace["choose"])


def path_through(
    tree: Tree, values: Mapping[str, Literal]
) -> tuple[list[tuple[Numeric | Categorical, bool]], Leaf]:
    """The tests that these feature values meet with their outcomes, and the leaf they end in.

    Raises:
        KeyError: a test needs a feature that has no value.
    """
    path: list[tuple[Numeric | Categorical, bool]] = []
    node = tree.root
    while isinstance(node, Split):
        outcome = holds(node.test, values)
        path.append((node.test, outcome))
        node = node.yes if outcome else node.no
    return path, node


def holds(test: Numeric | Categorical, values: Mapping[str, Any]) -> bool:
    """Whether a test holds for these feature values; the meaning that `compile_tree` compiles."""
    if isinstance(test, Categorical):
        return values[test.feature] in test.values
    return product(test.left, values) <= product(test.right, values, test.threshold)


def _lines(
    node: Node, names: Mapping[str, str], constants: dict[str, Any], indent: str
) -> Iterator[str]:
    while isinstance(node, Split):
        yield f"{indent}if {_test(node.test, names, constants)}:"
        yield from _lines(node.yes, names, constants, indent + " ")
        node = node.no  # after a return, `else` is the next line
    constant = f"c{len(constants)}"
    constants[constant] = node.ranking
    yield f"{indent}return {constant}"


def _test(test: Numeric | Categorical, names: Mapping[str, str], constants: dict[str, Any]) -> str:
    constant = f"c{len(constants)}"
    if isinstance(test, Categorical):
        constants[constant] = frozenset(test.values)
        return f"{names[test.feature]} in {constant}"
    constants[constant] = test.threshold
    left = "*".join(_factor(factor, names) for factor in test.left)
    right = "*".join([constant, *(_factor(factor, names) for factor in test.right)])
    return f"{left} <= {right}"


def _factor(factor: Factor, names: Mapping[str, str]) -> str:
    if isinstance(factor, Tiles):
        return f"-(-{names[factor.feature]}//{factor.block:d})"
    return names[factor]
