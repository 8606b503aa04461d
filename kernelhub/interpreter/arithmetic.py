"""bfloat16 and 8-bit floats in the interpreter: computed as numbers, rounded after each operation.

The interpreter holds both as unsigned integers and hands those to numpy. Here operands are widened
to float32, the operation runs, and the result is rounded back to nearest even: what the hardware
does, and for + - * / and sqrt exactly so, since float32 has more than twice bfloat16's precision.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from . import floats

# Builder methods that compute on floats; a release of Triton may lack some.
COMPUTES = (
    "create_fadd", "create_fsub", "create_fmul", "create_fdiv", "create_frem", "create_fneg",
    "create_minimumf", "create_maximumf", "create_minnumf", "create_maxnumf",
    "create_precise_divf", "create_approx_divf", "create_precise_sqrt", "create_clampf",
    "create_fma", "create_exp", "create_exp2", "create_log", "create_log2", "create_sqrt",
    "create_sin", "create_cos", "create_floor", "create_ceil", "create_erf", "create_rsqrt",
)  # fmt: skip
COMPARES = tuple(
    f"create_fcmp{order}{relation}"
    for order in "OU"
    for relation in ("LT", "GT", "LE", "GE", "EQ", "NE")
)


def convert_float(data: Any, source: Any, target: Any, rounding: Any) -> Any:
    """Stands in for the interpreter's `_convert_float`: bit patterns to bit patterns."""
    truncates = getattr(rounding, "name", None) == "RTZ"
    return floats.encode(floats.decode(data, source.name), target.name, nearest=not truncates)


def one_bit(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `binary_op`: int1 wraps around like any integer, where numpy's bool saturates."""

    @functools.wraps(method)
    def wrapper(builder: Any, lhs: Any, rhs: Any, op: Any) -> Any:
        if not lhs.data.dtype == rhs.data.dtype == np.bool_:
            return method(builder, lhs, rhs, op)

        def wrapping(a: Any, b: Any) -> Any:
            return (op(a.astype(np.int8), b.astype(np.int8)) & 1).astype(np.bool_)

        return method(builder, lhs, rhs, wrapping)

    return wrapper


class Arithmetic:
    """The wrappers, bound to one interpreter's handle class and Triton's types."""

    def __init__(self, interpreter: Any) -> None:
        self._handle = interpreter.TensorHandle
        self._types = interpreter.tl
        self._ops = interpreter._interpreter

    def is_bf16(self, value: Any) -> bool:
        return isinstance(value, self._handle) and value.dtype.scalar == self._types.bfloat16

    def widen(self, value: Any) -> Any:
        if not self.is_bf16(value):
            return value
        return self._handle(floats.decode(value.data, "bf16"), self._types.float32)

    def narrow(self, value: Any) -> Any:
        return self._handle(floats.encode(np.asarray(value.data), "bf16"), self._types.bfloat16)

    def computing(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def wrapper(builder: Any, *args: Any, **kwargs: Any) -> Any:
            if not any(map(self.is_bf16, args)):
                return method(builder, *args, **kwargs)
            return self.narrow(method(builder, *map(self.widen, args), **kwargs))

        return wrapper

    def comparing(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def wrapper(builder: Any, *args: Any, **kwargs: Any) -> Any:
            return method(builder, *map(self.widen, args), **kwargs)

        return wrapper

    def casting(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """For `cast_impl(source, type)`: integers reach bfloat16 through float32, as compiled."""

        @functools.wraps(method)
        def wrapper(builder: Any, source: Any, target: Any) -> Any:
            if target.scalar == self._types.bfloat16:
                if self.is_bf16(source):
                    return source
                if not source.dtype.scalar.is_floating():
                    source = method(builder, source, self._types.float32)
                return self.narrow(source)
            return method(builder, self.widen(source), target)

        return wrapper

    def dotting(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """For `create_dot(a, b, accumulator, ...)`: accumulates in float32 at least."""

        @functools.wraps(method)
        def wrapper(builder: Any, a: Any, b: Any, accumulator: Any, *rest: Any) -> Any:
            result = method(builder, self.widen(a), self.widen(b), self.widen(accumulator), *rest)
            return self.narrow(result) if self.is_bf16(accumulator) else result

        return wrapper

    def updating(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """For `create_atomic_rmw`: adds bfloat16 lane by lane; launches run one at a time."""

        @functools.wraps(method)
        def wrapper(
            builder: Any, kind: Any, pointer: Any, value: Any, mask: Any, *rest: Any
        ) -> Any:
            if not self.is_bf16(value) or kind.name != "FADD":
                return method(builder, kind, pointer, value, mask, *rest)
            shape = np.shape(pointer.data)
            addresses, bits, lanes = (
                np.broadcast_to(np.asarray(x.data), shape).ravel() for x in (pointer, value, mask)
            )
            before = np.zeros(addresses.shape, np.uint16)
            zero: Any = np.zeros(1, np.uint16)
            always: Any = np.ones(1, dtype=bool)
            for i in np.flatnonzero(lanes):  # one by one: lanes may share an address
                at = addresses[i : i + 1].copy()  # triton wants to write to what it is given
                before[i] = self._ops.load(at, always, zero, np.dtype(np.uint16))[0]
                pair = floats.decode(np.array([before[i], bits[i]]), "bf16")
                after = floats.encode(pair.sum(keepdims=True), "bf16")
                self._ops.store(at, after, always)
            return self._handle(before.reshape(shape), self._types.bfloat16)

        return wrapper

    def reducing(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """For the numpy short cuts of reductions and scans: float32 inside, rounded once."""
        types = self._types

        def made(handle: Any, like: Any) -> Any:
            shape = [int(extent) for extent in like.shape]
            kind = types.block_type(handle.dtype, shape) if shape else handle.dtype
            return types.tensor(handle, kind)

        def widened(value: Any) -> Any:
            if not (isinstance(value, types.tensor) and self.is_bf16(value.handle)):
                return value
            return made(self.widen(value.handle), value)

        def narrowed(value: Any) -> Any:
            if value.dtype.scalar != types.float32:
                return value  # the indices of an argmax
            return made(self.narrow(value.handle), value)

        @functools.wraps(method)
        def wrapper(operation: Any, operand: Any, *args: Any, **kwargs: Any) -> Any:
            wide = widened(operand)
            result = method(operation, wide, *args, **kwargs)
            if wide is operand:
                return result
            if isinstance(result, (tuple, list)):
                return type(result)(map(narrowed, result))
            return narrowed(result)

        return wrapper
