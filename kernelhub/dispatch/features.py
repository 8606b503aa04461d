"""The names that decision trees may test, and how their values come from a call's arguments.

    M          a scalar argument: its value (int, float, bool, str)
    x_dtype    an array argument's dtype, by its short name ("bfloat16")
    x_dim0     an array argument's size along an axis, in elements

Of scalars, those count that the author's tuning key names and those that are compiled into the
kernel; where the author names no key, all of them. Products and ratios are not features: a test
may compare products of features (see `formats.tree.Numeric`). Only what a tree tests is computed
when it is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from kernelhub.formats.tree import Literal

from .launch import dtype_name

Getter = Callable[[Mapping[str, Any]], Literal]
DTYPES = (
    "bool", "int4", "int8", "int16", "int32", "int64", "uint4", "uint8", "uint16", "uint32",
    "uint64", "float4_e2m1fn", "float4_e2m1fn_x2", "float8_e3m4", "float8_e4m3", "float8_e4m3fn",
    "float8_e4m3fnuz", "float8_e4m3b11fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu",
    "float16", "bfloat16", "float32", "float64", "complex64", "complex128",
)  # fmt: skip
"""Short names of the dtypes of torch and JAX."""


def of(
    arguments: Mapping[str, Any], *, key: Collection[str], constexprs: Collection[str]
) -> dict[str, Literal]:
    """All features of a call.

    Args:
        arguments: by parameter name.
        key: names of the author's tuning key; empty where there is none.
        constexprs: names of parameters that are compiled into the kernel.
    """
    found: dict[str, Literal] = {}
    for name, value in arguments.items():
        if isinstance(value, bool | str) or type(value) in (int, float):
            if not key or name in key or name in constexprs:
                found[name] = value
        elif hasattr(value, "shape"):
            found |= _of_array(name, value)
    # A parameter that is called like a derived feature keeps its name.
    return found | {name: found[name] for name in arguments.keys() & found.keys()}


def _of_array(name: str, value: Any) -> dict[str, Literal]:
    dtype = getattr(value, "dtype", None) or getattr(getattr(value, "base", None), "dtype", None)
    found: dict[str, Literal] = {f"{name}_dim{i}": int(n) for i, n in enumerate(value.shape)}
    return found if dtype is None else {f"{name}_dtype": dtype_name(dtype), **found}


def kind(value: Literal) -> str:
    """The kind of a feature's value as a tree names it: "int", "float", "str" or "bool"."""
    return type(value).__name__


def shaped(used: Collection[str], parameters: Collection[str]) -> set[str]:
    """The parameters of which these features need the shape."""
    pairs = (source(feature, parameters) for feature in used)
    return {name for name, what in pairs if what.startswith("dim")}


def source(feature: str, parameters: Collection[str]) -> tuple[str, str]:
    """Where a feature comes from: (parameter, "value" | "dtype" | "dim<i>"), ("", "") if none."""
    if feature in parameters:
        return feature, "value"
    name, _, what = feature.rpartition("_")
    if name in parameters and (what == "dtype" or (what[:3] == "dim" and what[3:].isdigit())):
        return name, what
    return "", ""
