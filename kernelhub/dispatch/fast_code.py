"""Text of the small functions that are generated for a tunable's hot path.

A generated function has the tunable's own parameters, so Python itself binds the arguments of a
call, and evaluates one flat tuple: the key under which what to do is remembered.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from typing import Any

# What an argument has been so far, and so how it enters a key.
TENSOR, OPTIONAL, FLOAT, SCALAR, NONE, OTHER = "tensor", "optional", "float", "scalar", "none", "?"
_WIDER = {
    frozenset({NONE, TENSOR}): OPTIONAL,
    frozenset({NONE, OPTIONAL}): OPTIONAL,
    frozenset({TENSOR, OPTIONAL}): OPTIONAL,
    frozenset({FLOAT, SCALAR}): SCALAR,
    frozenset({NONE, SCALAR}): SCALAR,
    frozenset({NONE, FLOAT}): SCALAR,
}

_SIMPLE = (bool, int, str)


class Absent:
    """Stands for a parameter that a call does not give."""


ABSENT = Absent()


def role_of(value: Any, *, valued: bool) -> str:
    """What an argument is.

    Args:
        valued: whether a float's value matters too (it is compiled in, or a feature).
    """
    if value is None:
        return NONE
    if type(value) is float:
        return SCALAR if valued else FLOAT
    if type(value) in _SIMPLE:
        return SCALAR
    return TENSOR if hasattr(value, "data_ptr") and hasattr(value, "dtype") else OTHER


def merged(old: str | None, new: str) -> str:
    """The role that covers both."""
    if old is None or old == new:
        return new
    return _WIDER.get(frozenset({old, new}), OTHER)


def guard_key(name: str, role: str, *, shape: bool) -> str:
    """Everything that a compiler specialises on in this argument, and its features."""
    dims = f", {name}.shape" if shape else ""
    tensor = f"{name}.dtype, {name}.data_ptr() & 15 == 0{dims}"
    if role == TENSOR:
        return tensor
    if role == OPTIONAL:
        return f"None if {name} is None else ({tensor})"
    if role == FLOAT:
        return f"{name}.__class__"
    return f"{name}, {name}.__class__"  # 1, 1.0 and True are equal keys


def select_key(name: str, role: str, *, feature: bool, shape: bool, device: bool) -> str:
    """Everything in this argument that the choice of a configuration may depend on."""
    dims = (f", {name}.shape" if shape else "") + (f", {name}.device" if device else "")
    if role == TENSOR:
        return f"{name}.dtype{dims}"
    if role == OPTIONAL:
        return f"None if {name} is None else ({name}.dtype{dims},)"
    if role == OTHER:
        return f"_kind({name}, {shape})"
    return f"{name}, {name}.__class__" if feature else f"{name}.__class__"


def kind_of(value: Any, shape: bool) -> Any:
    """The part of `select_key` for what is neither a plain tensor nor a scalar."""
    if isinstance(value, bool | int | float | str):
        return value, value.__class__
    inner = getattr(value, "base", value)  # a tensor descriptor has its dtype there
    dims = tuple(value.shape) if shape else None
    return value.__class__, getattr(inner, "dtype", None), dims


def parameter_list(signature: inspect.Signature, tuned: Collection[str]) -> str:
    """Parameters of a generated function: the tunable's without the tuned ones.

    Each may be left out (its default is `_default_<name>`), so that a wrong call reaches the code
    that knows the right error. What cannot be bound ends up in `_extra` and `_rest`.
    """
    plain: list[str] = []
    named: list[str] = []
    target = plain
    for name, parameter in signature.parameters.items():
        if parameter.kind is parameter.KEYWORD_ONLY or name in tuned:
            target = named  # what follows a tuned parameter cannot be given by position
        if name not in tuned:
            target.append(f"{name}=_default_{name}")
    return ", ".join([*plain, "*_extra", *named, "**_rest"])


def defaults(signature: inspect.Signature) -> dict[str, Any]:
    """The namespace that `parameter_list` needs."""
    return {
        f"_default_{name}": ABSENT if parameter.default is parameter.empty else parameter.default
        for name, parameter in signature.parameters.items()
    }


def is_plain(signature: inspect.Signature) -> bool:
    """Whether functions can be generated for it: no *args, **kwargs or positional-only."""
    allowed = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return all(parameter.kind in allowed for parameter in signature.parameters.values())


def function(text: str, name: str, namespace: Mapping[str, Any]) -> Any:
    """The function that generated text defines."""
    scope = {"_kind": kind_of, **namespace}
    # Made of parameter names that Python has already accepted and of fixed text.
    exec(compile(text, f"<kernelhub {name}>", "exec"), scope)  # noqa: S102
    return scope[name]
