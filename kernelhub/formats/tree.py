"""Decision trees: arguments of a launch -> ranked configurations. Standard library only.

A tree module is pure Python text that people read and diff and that nothing executes: `parse` walks
its syntax against a small grammar and refuses everything else, so a tree from a stranger is data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

Literal: TypeAlias = "int | float | bool | str | None"
Config: TypeAlias = "Mapping[str, Literal]"
"""One configuration: keyword arguments of the tunable, flat. For a Triton kernel the launch options
num_warps, num_stages, num_ctas and maxnreg stand beside its constexpr parameters."""

SCHEMA = 1


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
class Numeric:
    """`product(left) <= threshold * product(right)`; an empty `right` is 1."""

    left: tuple[str, ...]
    threshold: float | int
    right: tuple[str, ...] = ()


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
