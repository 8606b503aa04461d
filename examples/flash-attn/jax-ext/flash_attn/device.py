"""What is traced for: the platform, and whether it is a Hopper GPU."""

import jax
from jax.core import Tracer

# Of chips that are named while there is no device to ask (compute capability 9.0).
_HOPPER = ("H100", "H200", "H800", "H20", "GH200")


def platform_of(arrays):
    """The one platform of concrete arrays; of traced ones the platform that is traced for.

    Args:
        arrays: by the names that the caller knows them by.

    Returns:
        "cpu", "gpu" or "tpu".

    Raises:
        ValueError: the arrays are on devices of several platforms.
    """
    found = {
        name: next(iter(array.devices())).platform
        for name, array in arrays.items()
        if not isinstance(array, Tracer)
    }
    if len(set(found.values())) > 1:
        places = ", ".join(f"{name} is on {place}" for name, place in found.items())
        raise ValueError(f"{places}: move them to one device with jax.device_put")
    if len(found) == len(arrays):
        return _family(next(iter(found.values())))
    named = _named() or jax.config.jax_default_device
    platform = named if isinstance(named, str) else getattr(named, "platform", None)
    return _family(platform or jax.default_backend())


def is_hopper():
    """Whether the GPU has warpgroup instructions and a tensor memory accelerator."""
    named = _named()
    if named is not None:
        return any(chip in named.device_kind.split() for chip in _HOPPER)
    return getattr(jax.local_devices()[0], "compute_capability", None) == "9.0"


def _named():
    """The device that the caller traces for with `jax.sharding.use_abstract_mesh`, if any."""
    device = jax.sharding.get_abstract_mesh().abstract_device
    return None if device is None or device.platform is None else device


def _family(platform):
    return "gpu" if platform in ("cuda", "rocm") else platform
