"""One tensor to one array and back, by DLPack: shared, copied or refused.

On a GPU both directions are ordered by events, not by waiting. `jax.dlpack.from_dlpack` asks the
tensor for a capsule on JAX's stream for external work; torch lets that stream wait for its current
one. `torch.from_dlpack` names its current stream to the array; JAX lets that one wait until the
array is defined. (Read in jax 0.10 and 0.11 and torch 2.11 and 2.13.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import torch

from kernelhub.errors import InputError

# What XLA asks of the address of a program's argument; on the CPU JAX itself copies below 64 bytes.
_ALIGNMENT = 16
_WIDE = {
    torch.int64: "int32",
    torch.float64: "float32",
    torch.complex128: "complex64",
    getattr(torch, "uint64", None): "uint32",
}
_PLATFORMS = {"cpu": "cpu", "cuda": "rocm" if torch.version.hip else "cuda"}


def dtype_of(place: str, dtype: torch.dtype) -> jax.numpy.dtype[Any]:
    """The dtype of the array, which is the tensor's.

    Raises:
        InputError: JAX has none that is the same.
    """
    narrow = _WIDE.get(dtype)
    if narrow is not None and not jax.config.jax_enable_x64:
        raise InputError(
            f"{place} is {dtype}, which JAX would cut to {narrow} without a word",
            hint=f"convert it yourself with .to(torch.{narrow}), or set jax_enable_x64",
        )
    try:
        return jax.numpy.dtype(str(dtype).removeprefix("torch."))
    except TypeError as error:
        raise InputError(f"{place} is {dtype}, which JAX does not have") from error


def check_device(place: str, kind: str) -> None:
    """Refuse devices whose memory the two do not share.

    Raises:
        InputError: neither a CPU nor a GPU of CUDA or ROCm.
    """
    if kind not in _PLATFORMS:
        raise InputError(
            f"{place} is on {kind}, and only CPUs and GPUs of CUDA and ROCm share memory with JAX",
            hint="move it with .cpu() first",
        )


def device_of(kind: str, index: int | None) -> jax.Device:
    """What JAX calls a device of torch's.

    Raises:
        InputError: JAX does not see it.
    """
    platform = _PLATFORMS[kind]
    try:
        devices = jax.local_devices(backend=platform)
        found = [d for d in devices if d.local_hardware_id == (index or 0)]
    except RuntimeError as error:  # jax's own word for a platform that it cannot start
        raise InputError(
            f"the tensors are on {kind}, and this JAX has no {platform}: {error}",
            hint="install JAX with its plugin for the GPU, or move the tensors with .cpu()",
        ) from error
    if not found:
        raise InputError(f"the tensors are on {kind}:{index}, which JAX does not see")
    return found[0]


def to_jax(tensor: torch.Tensor) -> jax.Array:
    """The array of a tensor that `check` let pass; a copy only where memory cannot be shared."""
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if not _is_compact(tensor):
        tensor = tensor.contiguous()
    if tensor.data_ptr() % _ALIGNMENT or (tensor.device.type == "cpu" and tensor.is_pinned()):
        tensor = tensor.clone()
    return jax.dlpack.from_dlpack(tensor)


def _is_compact(tensor: torch.Tensor) -> bool:
    """Whether the elements fill their memory in some order of the axes."""
    if tensor.is_contiguous():
        return True
    axes = [(step, n) for step, n in zip(tensor.stride(), tensor.shape, strict=True) if n != 1]
    expected = 1
    for step, size in sorted(axes):
        if step != expected:
            return False
        expected *= size
    return True


def to_torch(arrays: Sequence[jax.Array], given: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors of a program's results; copied where one is an argument or another result."""
    taken = {tensor.data_ptr() for tensor in given}
    tensors: list[torch.Tensor] = []
    for array in arrays:
        tensor = torch.from_dlpack(array)
        if tensor.device.type == "cpu":
            array.block_until_ready()
        if tensor.numel() and tensor.data_ptr() in taken:
            tensor = tensor.clone()
        taken.add(tensor.data_ptr())
        tensors.append(tensor)
    return tensors
