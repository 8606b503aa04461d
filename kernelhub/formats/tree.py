"""Decision trees: arguments of a launch -> ranked configurations. Standard library only.

A tree module is pure Python text that people read and diff and that nothing executes: `parse` walks
its syntax against a small grammar and refuses everything else, so a tree from a stranger is data.
`compile_tree` makes a fast function of a tree that is sound; its code is made from the model, not
from the text that was received.
"""

from .tree_compile import CompiledTree, compile_tree
from .tree_model import (
    SCHEMA,
    Categorical,
    Config,
    DeviceFacts,
    Factor,
    Leaf,
    Literal,
    Node,
    Numeric,
    Split,
    Tiles,
    Tree,
    features_of,
    product,
    used_features,
)
from .tree_parse import parse
from .tree_render import render

__all__ = [
    "SCHEMA",
    "Categorical",
    "CompiledTree",
    "Config",
    "DeviceFacts",
    "Factor",
    "Leaf",
    "Literal",
    "Node",
    "Numeric",
    "Split",
    "Tiles",
    "Tree",
    "compile_tree",
    "features_of",
    "parse",
    "product",
    "render",
    "used_features",
]
