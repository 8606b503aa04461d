"""Which trees speak for a device, and in which order. Pure: device facts in, an order out.

The whole order of choice, first to last:

1. what the caller forces (`capturing.forced`, or a keyword argument of a `@tunable` function);
2. the user's own tree for this device (an overlay);
3. the kernel's tree for this device;
4. the kernel's trees for compatible devices, nearest first;
5. the author's default: the declared one, else the first configuration that the author's pruning
   leaves.

A tree is for this device if name, architecture, SM count and shared-memory limit are the same and
memory is within 5 % (drivers reserve different amounts): an H100 is not an H200. What the one or
the other does not know (0: JAX tells no sizes of a GPU's memory) is not compared. A GPU is
compatible if its architecture is of the same family and the tree's is not newer. Whether a single
configuration fits the device is found when it is compiled, before it runs; then the next in rank
takes its place. A TPU program is compiled whole, when there is no next to take: a TPU is compatible
if the tree's generation is not newer and all that fitted its VMEM fits here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Protocol, TypeVar

from kernelhub.formats.tpu import generation
from kernelhub.formats.tree import DeviceFacts

MEMORY_TOLERANCE = 0.05
_NVIDIA = re.compile(r"sm_?(\d+)(\d)[af]?")
_AMD = re.compile(r"gfx(\d+)([0-9a-f])([0-9a-f])")


class HasDevice(Protocol):
    """Something that was tuned on a device."""

    @property
    def device(self) -> DeviceFacts: ...

    @property
    def overlay(self) -> bool: ...


T = TypeVar("T", bound=HasDevice)


def order(trees: Iterable[T], device: DeviceFacts | None) -> list[T]:
    """The trees that may choose for this device, in the order in which they are asked.

    An overlay counts only on the device it was tuned on. Without a device none counts.
    """
    if device is None:
        return []
    fitting = [tree for tree in trees if _admits(tree, device)]
    return sorted(fitting, key=lambda tree: _rank(tree, device))


def same_device(tree: DeviceFacts, device: DeviceFacts) -> bool:
    """Whether a tree of the one device was tuned on the other's model."""
    shared, memory = (tree.shared_memory, device.shared_memory), (tree.memory, device.memory)
    return (
        (tree.name, tree.arch, tree.sm_count) == (device.name, device.arch, device.sm_count)
        and (0 in shared or shared[0] == shared[1])
        and (0 in memory or abs(memory[0] - memory[1]) <= MEMORY_TOLERANCE * memory[1])
    )


def compatible(tree: DeviceFacts, device: DeviceFacts) -> bool:
    """Whether code tuned for the one may be worth running on the other: never a newer ISA."""
    if tree.arch == device.arch:
        return True
    older, newer = generation(tree.arch), generation(device.arch)
    if older is not None and newer is not None:
        return older <= newer and tree.shared_memory <= device.shared_memory
    mine, theirs = parse_arch(device.arch), parse_arch(tree.arch)
    return (
        mine is not None
        and theirs is not None
        and mine[:2] == theirs[:2]
        and theirs[2:] <= mine[2:]
    )


def parse_arch(arch: str) -> tuple[str, int, int, int] | None:
    """(vendor, family, minor, stepping) of "sm_90", "sm_120a", "gfx942:sramecc+"; None if other."""
    name = arch.partition(":")[0]
    if match := _NVIDIA.fullmatch(name):
        return "nvidia", int(match[1]), int(match[2]), 0
    if match := _AMD.fullmatch(name):
        return "amd", int(match[1]), int(match[2], 16), int(match[3], 16)
    return None


def _admits(tree: HasDevice, device: DeviceFacts) -> bool:
    if tree.overlay:
        return same_device(tree.device, device)
    return compatible(tree.device, device)


def _rank(tree: HasDevice, device: DeviceFacts) -> tuple[object, ...]:
    facts = tree.device
    distance = abs(math.log(max(facts.sm_count, 1) / max(device.sm_count, 1)))
    return (
        not tree.overlay,
        not same_device(facts, device),
        facts.arch != device.arch,
        (generation(device.arch) or 0) - (generation(facts.arch) or 0),
        round(distance, 6),
        facts.name,
    )
