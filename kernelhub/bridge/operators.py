"""The operators through which torch sees a JAX program, so that its compilers can too.

Each takes tensors and the key of a program of this process.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import torch

from kernelhub.errors import InputError

from . import crossing
from .planning import program_of
from .programs import is_floating


def run(key: str, with_grad: bool, form: Any, tensors: Sequence[torch.Tensor]) -> Any:
    """Run a program and put its results into the form that the function gave them."""
    if not torch.compiler.is_compiling():
        _refuse_transforms(tensors)
    program = torch.ops.kernelhub.jax_forward if with_grad else torch.ops.kernelhub.jax_call
    return _formed(form, program(list(tensors), key))


def _refuse_transforms(tensors: Sequence[torch.Tensor]) -> None:
    """Refuse what torch would fail on without a reason, or answer with tangents of zero."""
    if any(map(torch._C._functorch.is_functorch_wrapped_tensor, tensors)):
        raise InputError(
            "a JAX function was called under torch.vmap or torch.func (grad, jvp, ...)",
            hint="transform the JAX function, as in as_torch(jax.vmap(f)); gradients by backward() "
            "and torch.autograd.grad work",
        )
    forward = torch.autograd.forward_ad
    if forward._current_level >= 0 and any(
        forward.unpack_dual(tensor).tangent is not None for tensor in tensors
    ):
        raise InputError(
            "a JAX function was called in forward-mode differentiation of torch",
            hint="differentiate the JAX function, as in "
            "as_torch(lambda x, t: jax.jvp(f, (x,), (t,)))",
        )


def _formed(form: Any, results: Sequence[torch.Tensor]) -> Any:
    if isinstance(form, int):
        return results[form]
    kind, items = form[0], [_formed(item, results) for item in form[2]]
    if kind == "dict":
        return dict(zip(form[1], items, strict=True))
    if kind == "list":
        return items
    return tuple(items) if kind == "tuple" else None


@contextlib.contextmanager
def _on(device: torch.device) -> Iterator[None]:
    """With the device current, as DLPack asks for."""
    if device.type != "cuda":
        yield
        return
    if torch.cuda.is_current_stream_capturing():
        raise InputError(
            "a JAX function was called while a CUDA graph is captured, and JAX runs on streams of"
            " its own",
            hint="leave the call out of the graph",
        )
    with torch.cuda.device(device):
        yield


_UNSAFE = getattr(torch.Tag, "cudagraph_unsafe", None)  # torch 2.9 and newer
_custom_op = functools.partial(
    torch.library.custom_op,
    mutates_args=(),
    **({} if _UNSAFE is None else {"tags": (_UNSAFE,)}),
)


@_custom_op("kernelhub::jax_call", schema="(Tensor[] tensors, str key) -> Tensor[]")
def jax_call(tensors: list[torch.Tensor], key: str) -> list[torch.Tensor]:
    """A program's results."""
    return _through(program_of(key).call, tensors)


@_custom_op("kernelhub::jax_forward", schema="(Tensor[] tensors, str key) -> Tensor[]")
def jax_forward(tensors: list[torch.Tensor], key: str) -> list[torch.Tensor]:
    """A program's results, and what its gradient needs beside them and its arguments."""
    return _through(program_of(key).forward, tensors)


@_custom_op("kernelhub::jax_pull", schema="(Tensor[] saved, Tensor?[] dys, str key) -> Tensor[]")
def jax_pull(
    saved: list[torch.Tensor], dys: list[torch.Tensor | None], key: str
) -> list[torch.Tensor]:
    """The gradients of the arguments that want one."""
    given = [dy for dy in dys if dy is not None]
    with _on((saved + given)[0].device):
        arrays = [crossing.to_jax(tensor) for tensor in saved]
        slopes = [None if dy is None else crossing.to_jax(dy) for dy in dys]
        return crossing.to_torch(program_of(key).pull(arrays, slopes), [*saved, *given])


def _through(
    program: Callable[[Sequence[jax.Array]], list[jax.Array]], tensors: list[torch.Tensor]
) -> list[torch.Tensor]:
    with _on(tensors[0].device):
        return crossing.to_torch(program([crossing.to_jax(t) for t in tensors]), tensors)


@jax_call.register_fake
def _(tensors: list[torch.Tensor], key: str) -> list[torch.Tensor]:
    return _empty(program_of(key).results, tensors[0].device)


@jax_forward.register_fake
def _(tensors: list[torch.Tensor], key: str) -> list[torch.Tensor]:
    program = program_of(key)
    return _empty([*program.results, *program.gradient.own], tensors[0].device)


@jax_pull.register_fake
def _(saved: list[torch.Tensor], dys: list[torch.Tensor | None], key: str) -> list[torch.Tensor]:
    signature = program_of(key).signature
    device = (saved + [dy for dy in dys if dy is not None])[0].device
    return _empty([signature.arrays[i] for i in signature.wanted], device)


def _empty(shapes: Sequence[Any], device: torch.device) -> list[torch.Tensor]:
    return [
        torch.empty(shape.shape, dtype=getattr(torch, shape.dtype.name), device=device)
        for shape in shapes
    ]


def _setup(ctx: Any, inputs: tuple[list[torch.Tensor], str], output: list[torch.Tensor]) -> None:
    tensors, ctx.key = inputs
    program = program_of(ctx.key)
    count = len(program.results)
    sources = {"given": tensors, "result": output[:count], "own": output[count:]}
    saved = program.gradient.saved
    ctx.save_for_backward(*(sources[place.source][place.index] for place in saved))
    ctx.count = len(tensors)


def _backward(ctx: Any, dys: Sequence[torch.Tensor | None]) -> tuple[Any, None]:
    program = program_of(ctx.key)
    kept = [dy for dy, r in zip(dys, program.results, strict=False) if is_floating(r.dtype)]
    found = torch.ops.kernelhub.jax_pull(list(ctx.saved_tensors), kept, ctx.key)
    slopes: list[torch.Tensor | None] = [None] * ctx.count
    for index, slope in zip(program.signature.wanted, found, strict=True):
        slopes[index] = slope
    return slopes, None


jax_forward.register_autograd(_backward, setup_context=_setup)
