"""From the arguments of a call to the program that it runs."""

from __future__ import annotations

import itertools
import operator
import secrets
from collections.abc import Callable
from typing import Any

import torch

from kernelhub.errors import InputError

from . import crossing
from .programs import Argument, Array, Program, Signature, Static

# In every key: what a compiler keeps on disk may name a program, and must not find another one in
# another process.
_PROCESS = secrets.token_hex(8)
_numbers = itertools.count()
_functions: dict[str, Callable[..., Any]] = {}
_programs: dict[str, Program] = {}


def register(function: Callable[..., Any]) -> str:
    """A name for a function, for as long as the process lives."""
    name = f"{getattr(function, '__name__', type(function).__name__)}-{_PROCESS}-{next(_numbers)}"
    _functions[name] = function
    return name


def fact(value: Any) -> tuple[Any, ...]:
    """An argument as constants. Under torch.compile this is what makes a size or number constant:
    its compiler evaluates `index` and `hex`, and guards what it found.
    """
    if isinstance(value, torch.Tensor):
        sizes = tuple([operator.index(size) for size in value.shape])
        device, dense = value.device, value.layout is torch.strided
        return _TENSOR, sizes, value.dtype, device.type, device.index, dense, value.requires_grad
    if type(value) is int:
        return _INT, operator.index(value)
    if type(value) is float:
        return _FLOAT, value.hex()
    if type(value) is tuple:
        return _TUPLE, tuple([fact(item) for item in value])
    return _OTHER, type(value), value


_TENSOR, _INT, _FLOAT, _TUPLE, _OTHER = "tensor", "int", "float", "tuple", "other"
_plans: dict[Any, tuple[str, bool, Any]] = {}


@torch.compiler.assume_constant_result
def plan(name: str, with_grad: bool, named: tuple[str, ...], facts: Any) -> tuple[str, bool, Any]:
    """Which program a call runs: its key, whether gradients flow, and the form of its result.

    Args:
        name: what `register` gave the function.
        with_grad: whether torch records gradients now.
        named: the names of the last arguments.
        facts: what `fact` says of each argument.

    Raises:
        InputError: an argument cannot cross.
    """
    asked = name, with_grad, named, facts
    try:
        found = _plans.get(asked)
    except TypeError as error:
        raise InputError(
            f"{title(name)}: an argument is neither a tensor nor hashable ({error})",
            hint="give each tensor as an argument of its own, and lists as tuples",
        ) from error
    if found is None:
        found = _plans[asked] = _planned(*asked)
    return found


def _planned(name: str, with_grad: bool, named: tuple[str, ...], facts: Any) -> Any:
    count = len(facts) - len(named)
    places = [*(f"argument {i + 1}" for i in range(count)), *named]
    arguments = [_argument(place, *known) for place, known in zip(places, facts, strict=True)]
    tensors = [(p, known) for p, known in zip(places, facts, strict=True) if known[0] is _TENSOR]
    if not tensors:
        raise InputError("no argument is a tensor", hint="call the JAX function itself")
    devices = {(known[3], known[4]): place for place, known in tensors}
    if len(devices) > 1:
        where = ", ".join(f"{p} on {':'.join(map(str, d))}" for d, p in devices.items())
        raise InputError(f"{title(name)}: tensors on several devices: {where}")
    signature = Signature(
        positional=tuple(arguments[:count]),
        named=tuple(zip(named, arguments[count:], strict=True)),
        wanted=tuple(i for i, (_, known) in enumerate(tensors) if with_grad and known[6]),
        device=crossing.device_of(*tensors[0][1][3:5]),
    )
    key = f"{name}-{next(_numbers)}"
    _programs[key] = Program(_functions[name], signature)
    return key, bool(signature.wanted), _programs[key].form


def _argument(place: str, kind: str, *known: Any) -> Argument:
    if kind == _TENSOR:
        sizes, dtype, device, _, dense, _ = known
        if not dense:
            raise InputError(f"{place} is not a dense tensor", hint="give it as .to_dense()")
        crossing.check_device(place, device)
        return Array(sizes, crossing.dtype_of(place, dtype))
    return Static(_value(place, kind, *known))


def _value(place: str, kind: str, *known: Any) -> Any:
    if kind == _FLOAT:
        return float.fromhex(known[0])
    if kind == _TUPLE:
        return tuple(_value(place, *item) for item in known[0])
    if kind == _TENSOR:
        raise InputError(
            f"{place} is a tuple with a tensor in it",
            hint="give each tensor as an argument of its own",
        )
    return known[-1]


def title(name: str) -> str:
    return name.partition("-")[0]


def program_of(key: str) -> Program:
    try:
        return _programs[key]
    except KeyError:
        raise InputError(
            f"this graph calls the JAX function {title(key)} of another process",
            hint="compile it again in this process, after as_torch",
        ) from None
