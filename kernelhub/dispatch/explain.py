"""Why a kernel runs with the configuration that it runs with.

Works from files alone: trees, the arguments' features and a device. No GPU and no import of the
kernel are needed, so it also answers for a device that is not here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernelhub.errors import InputError
from kernelhub.formats.tree import (
    Categorical,
    Config,
    DeviceFacts,
    Leaf,
    Literal,
    Node,
    Numeric,
    used_features,
)
from kernelhub.formats.tree_compile import path_through

from .dispatcher import BoundTree
from .features import DTYPES
from .policy import order, same_device

if TYPE_CHECKING:  # it is read by what this package does without
    from kernelhub.formats.evidence import Evidence


class MissingValue(InputError):
    """A test on the way needs a feature whose value was not given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One test on the way, and how it came out."""

    test: Numeric | Categorical
    holds: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The answer of one tree.

    Attributes:
        source: the tree.
        origin: "overlay", "bundled" or "compatible".
        steps: the tests that led to the leaf.
        ranking: the leaf's configurations with their indices, best first.
        stale: whether the kernel's source is not the one it was tuned for; None if not known.
    """

    source: BoundTree
    origin: str
    steps: tuple[Step, ...]
    ranking: tuple[tuple[int, Config], ...]
    stale: bool | None = None


def explain(
    trees: Sequence[BoundTree],
    device: DeviceFacts | None,
    values: Mapping[str, Literal],
    *,
    source_hash: str | None = None,
) -> list[Explanation]:
    """What each tree that counts on this device says, in the order in which they are asked.

    The first one decides; where the list is empty, the author's default does.

    Raises:
        MissingValue: a test needs a feature that `values` does not give.
        InputError: a value is of another kind.
    """
    return [_explain(tree, device, values, source_hash) for tree in order(trees, device)]


def _explain(
    bound: BoundTree,
    device: DeviceFacts | None,
    values: Mapping[str, Literal],
    source_hash: str | None,
) -> Explanation:
    tree = bound.tree
    try:
        path, leaf = path_through(tree, values)
    except KeyError as error:
        raise MissingValue(
            f"{tree.kernel}: the tree asks for {error.args[0]}",
            hint="give it with --set; it asks for " + ", ".join(used_features(tree)),
        ) from error
    except TypeError as error:
        raise InputError(f"{tree.kernel}: a value is of the wrong kind: {error}") from error
    here = device is not None and same_device(tree.device, device)
    return Explanation(
        source=bound,
        origin=("overlay" if bound.overlay else "bundled") if here else "compatible",
        steps=tuple(Step(test=test, holds=outcome) for test, outcome in path),
        ranking=tuple((index, tree.configs[index]) for index in leaf.ranking),
        stale=None if source_hash is None else source_hash != tree.source_hash,
    )


def parse_values(settings: Sequence[str], kinds: Mapping[str, str]) -> dict[str, Literal]:
    """Read `["M=4096", "x_dtype=float16"]` as values of the kinds that a tree names.

    Raises:
        InputError: not of the form name=value, an unknown name, or a value of another kind.
    """
    values: dict[str, Literal] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or name not in kinds:
            known = ", ".join(kinds) or "none"
            raise InputError(f"cannot set {setting!r}", hint=f"write NAME=VALUE; names: {known}")
        values[name] = _value(setting, text, kinds[name])
    return values


def check_dtypes(
    settings: Sequence[str], trees: Sequence[BoundTree], evidences: Sequence[Evidence]
) -> None:
    """Refuse a dtype that there is not: it would go the way of all others, unnoticed.

    A feature that is called like a dtype's and has other values in the trees or their evidence is
    the kernel's own, and may have any value.

    Raises:
        InputError: names the dtypes that the trees and their evidence know.
    """
    for setting in settings:
        name, _, text = setting.partition("=")
        tested = {v for bound in trees for v in _tested(bound.tree.root, name)}
        seen = {p.features[name] for e in evidences for p in e.points if name in p.features}
        known = {str(value) for value in tested | seen}
        if name.endswith("_dtype") and known <= {*DTYPES} and text not in DTYPES:
            raise InputError(
                f"{setting!r}: there is no dtype {text!r}",
                hint=f"measured or told apart were {', '.join(sorted(known)) or 'none'}; others "
                f"are {', '.join(d for d in DTYPES if d not in known)}",
            )


def _tested(node: Node, feature: str) -> set[Literal]:
    """The values of a feature that the tests below a node name."""
    if isinstance(node, Leaf):
        return set()
    below = _tested(node.yes, feature) | _tested(node.no, feature)
    if isinstance(node.test, Categorical) and node.test.feature == feature:
        return below | set(node.test.values)
    return below


def _value(setting: str, text: str, kind: str) -> Literal:
    flags = {"true": True, "1": True, "false": False, "0": False}
    try:
        if kind == "bool":
            return flags[text.lower()]
        return {"int": int, "float": float, "str": str}[kind](text)  # type: ignore[no-any-return]
    except (ValueError, KeyError) as error:
        raise InputError(f"{setting!r}: the value must be of kind {kind}") from error
