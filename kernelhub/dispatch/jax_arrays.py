"""What JAX arrays say of a call: whether its shapes are static, and where it will run.

Concrete arrays and tracers alike; jax is looked up, never imported: whoever has arrays has it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from kernelhub.errors import DispatchError
from kernelhub.formats.tpu import chip_of_kind
from kernelhub.formats.tree import DeviceFacts

from .device import torch_device


def arrays_of(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that are JAX arrays or tracers, by name."""
    return {name: value for name, value in arguments.items() if hasattr(value, "aval")}


def symbolic(arrays: Mapping[str, Any]) -> str | None:
    """The first size that is a symbol of `jax.export`: "dimension 0 of x is b"; None if none is."""
    for name, array in arrays.items():
        for axis, size in enumerate(array.shape):
            if not isinstance(size, int):
                return f"dimension {axis} of {name} is {size}"
    return None


def device_facts(arrays: Mapping[str, Any]) -> DeviceFacts | None:
    """The accelerator that these arrays are computed on, None for a CPU.

    Arrays outside of `jax.jit` that were put on a device are computed there. A tracer does not say
    where its program will run. Then it is, first to last: the chip that a mesh in force describes
    (`jax.set_mesh`, or ahead-of-time compilation for a chip that is not here), the default device
    (`jax.default_device`), the first device of the default backend.

    Raises:
        DispatchError: the arrays lie on devices of several kinds.
    """
    jax = sys.modules["jax"]
    placed = {name: device for name, array in arrays.items() if (device := _committed(array))}
    kinds = {(device.platform, device.device_kind): name for name, device in placed.items()}
    if len(kinds) > 1:
        where = ", ".join(f"{name} is on {kind}" for (_, kind), name in kinds.items())
        raise DispatchError(
            f"arrays on devices of several kinds: {where}",
            hint="move them to one with jax.device_put",
        )
    if placed:
        return _facts(next(iter(placed.values())))
    described = getattr(jax.sharding.get_abstract_mesh(), "abstract_device", None)
    chip = None if described is None else chip_of_kind(described.device_kind)
    if chip is not None:
        return chip.facts
    default = jax.config.jax_default_device
    if default is None or isinstance(default, str):
        default = jax.local_devices(backend=default)[0]
    return _facts(default)


def _committed(array: Any) -> Any:
    """A device of an array that was put somewhere; None for tracers and for arrays that may move.

    An array over several devices has them all of one kind.
    """
    tracer = sys.modules["jax"].core.Tracer
    if isinstance(array, tracer) or not getattr(array, "committed", False):
        return None
    return next(iter(array.devices()))


_known: dict[Any, DeviceFacts | None] = {}


def _facts(device: Any) -> DeviceFacts | None:
    if device not in _known:
        from kernelhub.target import jax_device_facts  # where it is cheap: once a device

        facts = jax_device_facts(device)
        # torch knows what JAX does not tell of a GPU: its memory and shared memory.
        if facts is not None and device.platform == "gpu":
            fuller = torch_device(device.local_hardware_id)
            facts = fuller if fuller is not None and fuller.name == facts.name else facts
        _known[device] = facts
    return _known[device]
