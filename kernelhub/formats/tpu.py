"""The TPU chips: how JAX calls them, and what of each a tree's device facts say. Literals only.

A device is what JAX calls one: on v4 and v5p the two TensorCores of a chip together, elsewhere one
TensorCore. Memory is that of the device, VMEM that of one core.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .tree_model import DeviceFacts

_MIB = 1 << 20
_ARCH = re.compile(r"tpu(\d+)([a-z]*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class TpuChip:
    """One generation of TPU in one of its forms.

    Attributes:
        name: short, as people call it: "v5e", "7x".
        kinds: what `device_kind` of a JAX device may say; the first is what it says today.
        topology: smallest arrangement of such chips that libtpu compiles for, by its name.
        facts: as in the trees that are tuned for it.
    """

    name: str
    kinds: tuple[str, ...]
    topology: str
    facts: DeviceFacts


def _chip(
    name: str, kinds: tuple[str, ...], topology: str, cores: int, hbm: int, vmem_mib: int
) -> TpuChip:
    facts = DeviceFacts(
        name=f"TPU {name}" if name.startswith("v") else f"TPU{name}",
        arch="tpu" + name.removeprefix("v"),
        sm_count=cores,
        memory=hbm,
        shared_memory=vmem_mib * _MIB,
    )
    return TpuChip(name=name, kinds=kinds, topology=topology, facts=facts)


CHIPS: tuple[TpuChip, ...] = (
    _chip("v4", ("TPU v4",), "v4:2x2x1", 2, 34_400_000_000, 16),
    _chip("v5e", ("TPU v5 lite", "TPU v5e"), "v5e:2x2", 1, 17_200_000_000, 128),
    _chip("v5p", ("TPU v5", "TPU v5p"), "v5p:2x2x1", 2, 103_000_000_000, 64),
    _chip("v6e", ("TPU v6 lite", "TPU v6e"), "v6e:2x2", 1, 34_400_000_000, 128),
    _chip("7x", ("TPU7x", "TPU v7x"), "tpu7x:2x2x1", 1, 103_000_000_000, 64),
)


def chip_of_kind(kind: str) -> TpuChip | None:
    """The chip that a JAX device's `device_kind` names, None for one that is not known."""
    return next((chip for chip in CHIPS if kind in chip.kinds), None)


def chip_of_name(name: str) -> TpuChip | None:
    """The chip that is called so: "v5e", "tpu-v5e", "7x", "tpu7x"; None if none is."""
    plain = name.lower().removeprefix("tpu").lstrip("-_ ")
    return next((c for c in CHIPS if plain.lstrip("v") == c.name.lstrip("v")), None)


def generation(arch: str) -> int | None:
    """5 of "tpu5e"; None for what is no TPU."""
    match = _ARCH.fullmatch(arch)
    return None if match is None else int(match[1])
