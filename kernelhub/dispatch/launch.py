"""What one launch of a tunable looked like: dtypes, shapes, strides, scalars; never contents.

A `Launch` is what the tuner measures for, what `kernelhub.record` writes down, and what a decision
tree is asked about. It is plain data: JSON both ways, hashed by content, and equal on every machine
where the same call is made.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

Scalar: TypeAlias = "int | float | bool | str | None"


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorFact:
    """An array argument.

    Attributes:
        dtype: the framework's short name: "float16", "bfloat16", "int32".
        shape: in elements.
        strides: in elements; empty where the framework has none (JAX).
        aligned: whether its address is a multiple of 16 bytes, which compilers specialise on.
        device: device type: "cuda", "cpu", "tpu"; no ordinal.
        block: tile of a tensor descriptor, None for a plain tensor.
    """

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...] = ()
    aligned: bool = True
    device: str
    block: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalarFact:
    """A number, truth value, string or None. `constexpr` marks what is compiled into the kernel."""

    value: Scalar
    constexpr: bool = False

    def __eq__(self, other: object) -> bool:
        # 1, 1.0 and True are equal to Python and different arguments to a compiler.
        return isinstance(other, ScalarFact) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def _identity(self) -> tuple[str, str, bool]:
        return (type(self.value).__name__, repr(self.value), self.constexpr)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpaqueFact:
    """Anything else, by a stable name: a dtype object, another kernel, a callable."""

    type: str
    text: str
    constexpr: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TupleFact:
    """A tuple or list of arguments."""

    items: tuple[Argument, ...]


Argument: TypeAlias = "TensorFact | ScalarFact | OpaqueFact | TupleFact"


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One launch of one tunable.

    Attributes:
        kernel: dotted name of the tunable below its package ("attention.attention_fwd").
        arguments: by parameter name in the order of the signature, without those that the
            configuration sets.
    """

    kernel: str
    arguments: tuple[tuple[str, Argument], ...]

    def argument(self, name: str) -> Argument:
        """The argument of that name; KeyError if there is none."""
        return dict(self.arguments)[name]

    @property
    def key(self) -> str:
        """`sha256:<hex>` of the content: equal launches have equal keys on every machine."""
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        return "sha256:" + hashlib.sha256(text.encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """A JSON object; `from_json` is its inverse."""
        return {
            "kernel": self.kernel,
            "arguments": [[name, _argument_to_json(fact)] for name, fact in self.arguments],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Launch:
        """The launch that `to_json` described.

        Raises:
            ValueError: the object is not of that form.
        """
        try:
            kernel, arguments = data["kernel"], data["arguments"]
            facts = tuple((_text(name), _argument_from_json(fact)) for name, fact in arguments)
            return cls(kernel=_text(kernel), arguments=facts)
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
            raise ValueError(f"not a launch: {error}") from error


def _argument_to_json(fact: Argument) -> dict[str, Any]:
    if isinstance(fact, TensorFact):
        data: dict[str, Any] = {
            "kind": "tensor",
            "dtype": fact.dtype,
            "shape": list(fact.shape),
            "strides": list(fact.strides),
            "aligned": fact.aligned,
            "device": fact.device,
        }
        return data if fact.block is None else data | {"block": list(fact.block)}
    if isinstance(fact, TupleFact):
        return {"kind": "tuple", "items": [_argument_to_json(item) for item in fact.items]}
    if isinstance(fact, OpaqueFact):
        data = {"kind": "opaque", "type": fact.type, "text": fact.text}
    else:
        # JSON has neither infinities nor NaN, and some readers turn 2.0 into 2: floats are text.
        value = repr(fact.value) if isinstance(fact.value, float) else fact.value
        data = {"kind": "scalar", "type": type(fact.value).__name__, "value": value}
    return data | {"constexpr": True} if fact.constexpr else data


def _argument_from_json(data: Mapping[str, Any]) -> Argument:
    kind, constexpr = data["kind"], data.get("constexpr", False) is True
    if kind == "tensor":
        block = data.get("block")
        return TensorFact(
            dtype=_text(data["dtype"]),
            shape=_ints(data["shape"]),
            strides=_ints(data["strides"]),
            aligned=data["aligned"] is True,
            device=_text(data["device"]),
            block=None if block is None else _ints(block),
        )
    if kind == "tuple":
        return TupleFact(items=tuple(_argument_from_json(item) for item in data["items"]))
    if kind == "opaque":
        return OpaqueFact(type=_text(data["type"]), text=_text(data["text"]), constexpr=constexpr)
    if kind == "scalar":
        return ScalarFact(value=_scalar(data["type"], data["value"]), constexpr=constexpr)
    raise ValueError(f"unknown kind of argument {kind!r}")


def _scalar(type_name: str, value: object) -> Scalar:
    if type_name == "float" and isinstance(value, str):
        return float(value)
    if type_name == "int" and type(value) is float and math.isfinite(value):
        raise ValueError(f"{value!r} is not an int")
    if type(value).__name__ != type_name or not isinstance(value, int | bool | str | None):
        raise ValueError(f"{value!r} is not of type {type_name!r}")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a string")
    return value


def _ints(values: object) -> tuple[int, ...]:
    if not isinstance(values, list) or any(type(value) is not int for value in values):
        raise TypeError(f"{values!r} is not a list of ints")
    return tuple(cast("list[int]", values))


def describe(value: object, *, constexpr: bool = False) -> Argument:
    """The facts of one live argument. Duck-typed, so it imports no framework."""
    if value is None or isinstance(value, bool | str):
        return ScalarFact(value=value, constexpr=constexpr)
    if type(value) is int or type(value) is float:
        return ScalarFact(value=value, constexpr=constexpr)
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return _describe_tensor(value)
    if hasattr(value, "base") and hasattr(value, "block_shape"):
        return _describe_descriptor(value)
    if isinstance(value, tuple | list):
        return TupleFact(items=tuple(describe(item, constexpr=constexpr) for item in value))
    return OpaqueFact(type=type(value).__name__, text=stable_name(value), constexpr=constexpr)


def dtype_name(dtype: object) -> str:
    """ "torch.float16", dtype('float16') and jnp.float16 are all "float16"."""
    name = getattr(dtype, "name", None)
    return name if isinstance(name, str) else str(dtype).rpartition(".")[2]


def stable_name(value: object) -> str:
    """A name for an object that holds no address: its qualified name, else its text."""
    function = getattr(value, "fn", value)
    name = getattr(function, "__qualname__", None)
    if isinstance(name, str):
        return name
    text = str(value)
    return type(value).__name__ if " at 0x" in text else text


def _describe_tensor(value: Any) -> TensorFact:
    return TensorFact(
        dtype=dtype_name(value.dtype),
        shape=tuple(int(size) for size in value.shape),
        strides=_strides(value),
        aligned=_aligned(value),
        device=_device_type(value),
    )


def _describe_descriptor(value: Any) -> TensorFact:
    base = _describe_tensor(value.base)
    return TensorFact(
        dtype=base.dtype,
        shape=tuple(int(size) for size in value.shape),
        strides=tuple(int(stride) for stride in value.strides),
        aligned=base.aligned,
        device=base.device,
        block=tuple(int(size) for size in value.block_shape),
    )


def _strides(value: Any) -> tuple[int, ...]:
    stride = getattr(value, "stride", None)
    return tuple(int(step) for step in stride()) if callable(stride) else ()


def _aligned(value: Any) -> bool:
    pointer = getattr(value, "data_ptr", None)
    return pointer() % 16 == 0 if callable(pointer) else True


def _device_type(value: Any) -> str:
    device = getattr(value, "device", None)
    kind = getattr(device, "type", None) or getattr(device, "platform", None)
    return kind if isinstance(kind, str) else "cpu"
