"""What a decision tree is: plain values, and the rules that every tree obeys."""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

Literal: TypeAlias = "int | float | bool | str | None"
Config: TypeAlias = "Mapping[str, Literal]"
"""One configuration: keyword arguments of the tunable, flat. For a Triton kernel the launch options
num_warps, num_stages, num_ctas and maxnreg stand beside its constexpr parameters."""

SCHEMA = 1

# Far above what a useful tree needs, and low enough that reading one never takes long.
MAX_DEPTH = 48
MAX_NODES = 2047
MAX_CONFIGS = 256
MAX_FACTORS = 8
MAX_BLOCK = 2**31
MAX_TEXT = 200
MAX_INT = 2**63 - 1
KINDS = ("int", "float", "str", "bool")

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_HASH = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """What a tree was tuned on, or what a launch runs on. Sizes in bytes.

    `name` is the vendor's ("NVIDIA H200"), `arch` the compiler's ("sm_90", "gfx942", "tpu7x").
    `shared_memory` is the most that one block may ask for (VMEM per core on a TPU).
    """

    name: str
    arch: str
    sm_count: int
    memory: int
    shared_memory: int

    @property
    def slug(self) -> str:
        """The name in file names: "NVIDIA H200" -> "nvidia-h200"."""
        return "-".join("".join(c if c.isalnum() else " " for c in self.name.lower()).split())


@dataclass(frozen=True, slots=True)
class Tiles:
    """`ceil(feature / block)`: how many blocks of `block` cover a feature of kind "int".

    A launch takes another wave where its number of tiles passes a multiple of the device's
    multiprocessors. No product of sizes says where that is. `block` is 2 to 2**31.
    """

    feature: str
    block: int


Factor: TypeAlias = "str | Tiles"
"""What products are made of: a feature of kind "int" or "float" by its name, or a tile count."""


@dataclass(frozen=True, slots=True)
class Numeric:
    """`product(left) <= threshold * product(right)`; an empty `right` is 1."""

    left: tuple[Factor, ...]
    threshold: float | int
    right: tuple[Factor, ...] = ()


@dataclass(frozen=True, slots=True)
class Categorical:
    """`feature in values`, for features that are strings or booleans."""

    feature: str
    values: tuple[str | bool, ...]


@dataclass(frozen=True, slots=True)
class Leaf:
    """Indices into the tree's configurations, best first, never empty."""

    ranking: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Split:
    """`yes` where the test holds, else `no`."""

    test: Numeric | Categorical
    yes: Node
    no: Node


Node: TypeAlias = "Leaf | Split"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """A tree module's content.

    Attributes:
        kernel: dotted name of the tunable below the package ("attention.attention_fwd").
        device: what it was tuned on.
        tools: versions that matter to the choice, such as {"triton": "3.6.0", "torch": ...}.
        source_hash: `sha256:<hex>` of the kernel's source as `dispatch.identity` computes it.
        features: names that tests may use, each with its kind: "int", "float", "str" or "bool".
        configs: the configurations that leaves rank.
        root: the tree itself.
    """

    kernel: str
    device: DeviceFacts
    tools: Mapping[str, str]
    source_hash: str
    features: Mapping[str, str]
    configs: tuple[Config, ...]
    root: Node


def is_name(text: object) -> bool:
    """Whether it can name a feature or parameter: an ASCII identifier that is no keyword."""
    return (
        isinstance(text, str)
        and len(text) <= MAX_TEXT
        and _NAME.fullmatch(text) is not None
        and not keyword.iskeyword(text)
    )


def nodes_of(root: Node) -> Iterator[tuple[Node, int]]:
    """Every node and its depth (the root's is 0), parents first, without recursion."""
    pending: list[tuple[Node, int]] = [(root, 0)]
    while pending:
        node, depth = pending.pop()
        yield node, depth
        if isinstance(node, Split):
            pending += [(node.no, depth + 1), (node.yes, depth + 1)]


def used_features(tree: Tree) -> tuple[str, ...]:
    """The features that some test of the tree asks for, in the tree's order."""
    used: set[str] = set()
    for node, _ in nodes_of(tree.root):
        if isinstance(node, Split):
            used |= features_of(node.test)
    return tuple(name for name in tree.features if name in used)


def features_of(test: Numeric | Categorical) -> set[str]:
    """The features that a test asks for."""
    if isinstance(test, Categorical):
        return {test.feature}
    return {f.feature if isinstance(f, Tiles) else f for f in (*test.left, *test.right)}


def product(
    factors: Iterable[Factor], values: Mapping[str, Any], start: float | int = 1
) -> float | int:
    """`start` times each factor in turn, with these feature values: as Python computes the text.

    Exact where `start` and the values are integers.

    Raises:
        KeyError: a factor's feature has no value.
        TypeError: a value is no number.
    """
    result: Any = start
    for factor in factors:
        if isinstance(factor, Tiles):
            result *= -(-values[factor.feature] // factor.block)
        else:
            result *= values[factor]
    return result  # type: ignore[no-any-return]


Place: TypeAlias = "str | int"
"""Where a fault is: a field's name in the text, or a node's number in the order of `nodes_of`."""


def faults_of(tree: Tree) -> Iterator[tuple[Place, str]]:
    """Everything about a tree that breaks its rules; nothing for a sound one."""
    yield from _head_faults(tree)
    for index, config in enumerate(tree.configs):
        for name, value in config.items():
            if not is_name(name) or not _is_literal(value):
                yield "CONFIGS", f"configuration {index}: {name!r} is not a name with a literal"
    for number, (node, depth) in enumerate(nodes_of(tree.root)):
        if number >= MAX_NODES or depth > MAX_DEPTH:
            yield number, f"a tree has at most {MAX_NODES} nodes and {MAX_DEPTH} levels"
            return
        for fault in _node_faults(node, tree):
            yield number, fault


def _head_faults(tree: Tree) -> Iterator[tuple[Place, str]]:
    if not all(is_name(part) for part in tree.kernel.split(".")):
        yield "KERNEL", f"{tree.kernel!r} is not a dotted name"
    if not _is_text(tree.device.name) or not tree.device.slug or not _is_text(tree.device.arch):
        yield "DEVICE", "a device needs a name and an arch"
    for what in ("sm_count", "memory", "shared_memory"):
        if not _is_int(getattr(tree.device, what)) or getattr(tree.device, what) < 0:
            yield "DEVICE", f"{what} must be an integer of at least 0"
    if not all(_is_text(k) and _is_text(v) for k, v in tree.tools.items()):
        yield "TOOLS", "must map names to versions"
    if _HASH.fullmatch(tree.source_hash) is None:
        yield "SOURCE", "must be sha256: and 64 hexadecimal digits"
    for name, kind in tree.features.items():
        if not is_name(name) or kind not in KINDS:
            yield "FEATURES", f"{name!r}: {kind!r}: want an identifier and one of {KINDS}"
    if not 1 <= len(tree.configs) <= MAX_CONFIGS:
        yield "CONFIGS", f"want 1 to {MAX_CONFIGS} configurations, not {len(tree.configs)}"


def _node_faults(node: Node, tree: Tree) -> Iterator[str]:
    if isinstance(node, Split):
        numeric = isinstance(node.test, Numeric)
        check = _numeric if numeric else _categorical
        yield from check(node.test, tree.features)  # type: ignore[arg-type]
        return
    sound = all(_is_int(i) and 0 <= i < len(tree.configs) for i in node.ranking)
    if not sound or not node.ranking or len(set(node.ranking)) != len(node.ranking):
        yield f"leaf {node.ranking!r} must rank different configurations of the tree"


def _numeric(test: Numeric, features: Mapping[str, str]) -> Iterator[str]:
    if not test.left or len(test.left) > MAX_FACTORS or len(test.right) > MAX_FACTORS:
        yield f"a product has 1 to {MAX_FACTORS} factors"
    for factor in (*test.left, *test.right):
        if isinstance(factor, Tiles):
            yield from _tiles(factor, features)
        elif features.get(factor) not in ("int", "float"):
            yield f"{factor!r} is not a numeric feature of the tree"
    if not (_is_int(test.threshold) or _is_finite(test.threshold)):
        yield f"threshold {test.threshold!r} must be a finite number"


def _tiles(tiles: Tiles, features: Mapping[str, str]) -> Iterator[str]:
    if features.get(tiles.feature) != "int":
        yield f"tiles are counted of {tiles.feature!r}, which is not an int feature of the tree"
    if not _is_int(tiles.block) or not 2 <= tiles.block <= MAX_BLOCK:
        yield f"the block of a tile count is an integer from 2 to {MAX_BLOCK}, not {tiles.block!r}"


def _categorical(test: Categorical, features: Mapping[str, str]) -> Iterator[str]:
    kind = features.get(test.feature)
    wanted = {"str": str, "bool": bool}.get(str(kind))
    if wanted is None:
        yield f"{test.feature!r} is not a str or bool feature of the tree"
    elif not test.values or any(type(v) is not wanted or not _is_literal(v) for v in test.values):
        yield f"{test.feature!r} must be compared with values of kind {kind}"


def _is_literal(value: object) -> bool:
    if value is None or isinstance(value, bool):
        return True
    return (
        _is_int(value) or _is_finite(value) or (isinstance(value, str) and len(value) <= MAX_TEXT)
    )


def _is_int(value: object) -> bool:
    return type(value) is int and -MAX_INT <= value <= MAX_INT


def _is_finite(value: object) -> bool:
    return type(value) is float and math.isfinite(value)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_TEXT
