"""torch and JAX together: call a function that is written for JAX with torch tensors.

    from kernelhub import get_kernel
    from kernelhub.bridge import as_torch

    kernel = get_kernel("org/fused-matmul", version=1, framework="jax")
    fused_matmul = as_torch(kernel.fused_matmul)
    y = fused_matmul(x, w, activation="gelu")        # torch tensors in, torch tensors out
    y.sum().backward()                               # gradients as JAX defines them

What crosses, and how:

- Tensors on the CPU and on NVIDIA and AMD GPUs, all of a call on one device, pass by DLPack without
  a copy, as long as their memory is dense (a transposed tensor is) and aligned.
- Copied first: slices with gaps and expanded tensors, data that does not start at a multiple of 16
  bytes (of 64 on the CPU), pinned host memory, tensors with a pending conjugation or negation.
- Refused, with the remedy: 64-bit types while JAX computes in 32 bits, since JAX would cut values
  without a word; types and layouts that JAX does not have; tensors on several or other devices;
  calls while a CUDA graph is captured; torch's function transforms (vmap, torch.func, forward-mode
  differentiation): transform the JAX function instead.

On the CPU a call returns when its result is there. On a GPU it returns at once: JAX's stream waits
for the work that torch's current stream holds at the call, and that stream waits for JAX's result.
The memory of a result belongs to JAX, which uses it again when the tensor is gone. Later calls
through the bridge on the same torch stream are ordered after what that stream still does with it;
programs that JAX is given directly, and other torch streams, are not: synchronise before those.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from kernelhub.errors import InputError, MissingExtra

__all__ = ["as_torch"]


def as_torch(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of torch tensors that runs a function of JAX arrays.

    Args:
        function: takes JAX arrays, by position or by name, and returns an array, None, or tuples,
            lists and dicts of them; a named tuple comes back as a plain one. It is compiled by
            `jax.jit` once per shapes and dtypes of its arrays and values of its other arguments.

    Returns:
        A function with the same parameters. Tensors become arrays; every other argument has to be
        hashable and is part of what is compiled, so a number that changes from call to call is
        better given as a tensor of no dimensions. Results are tensors on the device of the
        arguments, and no result shares memory with an argument. If an argument requires grad,
        gradients flow by `jax.vjp`, once (not to second order). It works under
        `torch.compile(fullgraph=True)`, where each size is compiled on its own, and only leaves
        out CUDA graphs.

    Raises:
        MissingExtra: torch or JAX is not installed.
        InputError: `function` is not callable. The function that is returned raises it for
            arguments that cannot cross, naming the argument.
    """
    if not callable(function):
        raise InputError(f"as_torch takes a function of JAX arrays, not {type(function).__name__}")
    try:
        import jax  # noqa: F401 - asked for here, so that its absence is not found in a call
        import torch

        from .operators import run
        from .planning import fact, plan, register
    except ModuleNotFoundError as error:
        raise MissingExtra("kernelhub.bridge", "triton,jax") from error
    name = register(function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        given = (*args, *kwargs.values())
        facts = tuple([fact(value) for value in given])
        key, with_grad, form = plan(name, torch.is_grad_enabled(), tuple(kwargs), facts)
        tensors = [value for value in given if isinstance(value, torch.Tensor)]
        return run(key, with_grad, form, tensors)

    return call
