"""A launch as data, from which another process without the device compiles the same kernel.

What Triton specialises on is dtypes, alignment and sizes of tensors and the values of scalars,
never contents: tensors on torch's "meta" device, which have no memory, stand for the launch's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernelhub.dispatch.adapter import Call
from kernelhub.dispatch.capturing import LiveLaunch
from kernelhub.dispatch.launch import (
    Argument,
    Launch,
    OpaqueFact,
    ScalarFact,
    TensorFact,
    TupleFact,
    describe,
)


def recipe_of(live: LiveLaunch) -> dict[str, Any] | None:
    """The recipe of a live launch as JSON; None where the launch cannot be made again elsewhere."""
    if live.tunable.language != "triton":
        return None
    launch = live.launch
    arguments = dict(launch.arguments)
    # Launch options such as `enable_fp_fusion` are no arguments of the kernel and are compiled in.
    for name, value in live.call.kwargs.items():
        if name not in live.tunable.parameters:
            arguments.setdefault(name, describe(value))
    if not all(map(_can_be_made, arguments.values())):
        return None
    return Launch(kernel=launch.kernel, arguments=tuple(arguments.items())).to_json()


def rebuilt(tunable: Any, recipe: Mapping[str, Any]) -> Call:
    """A call of a Triton tunable that compiles as the recipe's launch; it cannot be launched."""
    launch = Launch.from_json(recipe)
    keywords = {name: _made(fact) for name, fact in launch.arguments}
    call: Call = tunable.call((), keywords, (1,))
    return call


def _can_be_made(fact: Argument) -> bool:
    if isinstance(fact, TupleFact):
        return all(map(_can_be_made, fact.items))
    return not isinstance(fact, OpaqueFact) or fact.type == "dtype"


def _made(fact: Argument) -> Any:
    if isinstance(fact, ScalarFact):
        return fact.value
    if isinstance(fact, TupleFact):
        return tuple(map(_made, fact.items))
    if isinstance(fact, TensorFact):
        return _tensor(fact)
    return _dtype(fact.text)


def _tensor(fact: TensorFact) -> Any:
    import torch

    dtype = getattr(torch, fact.dtype)
    tensor = torch.empty_strided(fact.shape, fact.strides, dtype=dtype, device="meta")
    if not fact.aligned:  # a view that begins one element after an aligned address
        bytes_ = tensor.untyped_storage().nbytes()
        space = torch.empty(bytes_ // dtype.itemsize + 1, dtype=dtype, device="meta")
        tensor = space.as_strided(fact.shape, fact.strides, 1)
    if fact.block is None:
        return tensor
    from triton.tools.tensor_descriptor import TensorDescriptor

    return TensorDescriptor(tensor, list(fact.shape), list(fact.strides), list(fact.block))


def _dtype(text: str) -> Any:
    """torch's or Triton's dtype of that name: "torch.float16", "fp16"."""
    if text.startswith("torch."):
        import torch

        return getattr(torch, text.removeprefix("torch."))
    import triton.language as tl

    return tl.dtype(text)
