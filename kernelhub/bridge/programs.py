"""A JAX function at fixed shapes, dtypes and other arguments: itself, and its gradient."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from kernelhub.errors import InputError


@dataclass(frozen=True, slots=True)
class Array:
    """Stands for an array among a call's arguments."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


@dataclass(frozen=True, slots=True)
class Static:
    """Any other argument."""

    value: Any


Argument = Array | Static


@dataclass(frozen=True, slots=True)
class Signature:
    """Everything that a program depends on beside its function.

    Attributes:
        positional, named: the arguments in order.
        wanted: which of the arrays gradients are asked for.
        device: where it runs.
    """

    positional: tuple[Argument, ...]
    named: tuple[tuple[str, Argument], ...]
    wanted: tuple[int, ...]
    device: jax.Device

    @property
    def arrays(self) -> tuple[Array, ...]:
        """The arrays in the order in which they are passed."""
        arguments = (*self.positional, *(value for _, value in self.named))
        return tuple(value for value in arguments if isinstance(value, Array))


@dataclass(frozen=True, slots=True)
class Saved:
    """Where a value that the gradient needs comes from: "given", "result" or "own", and which."""

    source: str
    index: int


class Program:
    """One function at one signature. Making it traces the function, so its errors come from there.

    Attributes:
        results: shape and dtype of each result.
        form: how the function's result is made of them: the index of one, or (kind, names, forms of
            its parts).
    """

    def __init__(self, function: Callable[..., Any], signature: Signature) -> None:
        self.signature = signature
        self._function = function
        self._shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in signature.arrays]
        self._call = jax.jit(self._flat)
        with self.place():
            info = self._call.trace(*self._shapes).out_info
        self.results, structure = jax.tree.flatten(info)
        self.form = _form(jax.tree.unflatten(structure, range(len(self.results))))

    def place(self) -> Any:
        """The program's device is JAX's default: what is traced can know where it will run."""
        return jax.default_device(self.signature.device)

    def call(self, arrays: Sequence[jax.Array]) -> list[jax.Array]:
        """The results."""
        with self.place():
            return list(jax.tree.leaves(self._call(*arrays)))

    def forward(self, arrays: Sequence[jax.Array]) -> list[jax.Array]:
        """The results, then what the gradient needs and is neither argument nor result."""
        with self.place():
            leaves = jax.tree.leaves(self.gradient.forward(*arrays))
        count, gradient = len(self.results), self.gradient
        by_place = dict(zip(gradient.places, leaves[count:], strict=True))
        own = [by_place[place] for place in gradient.saved if place.source == "own"]
        return [*leaves[:count], *own]

    def pull(self, saved: Sequence[jax.Array], dys: Sequence[jax.Array | None]) -> list[jax.Array]:
        """The gradients of the arrays that are `wanted`, from those of the floating results."""
        with self.place():
            return list(self.gradient.pull(list(saved), list(dys)))

    @functools.cached_property
    def gradient(self) -> Gradient:
        """What `forward` and `pull` run; traced when it is first asked for."""
        wanted = self.signature.wanted

        def forward(*arrays: jax.Array) -> Any:
            def of(*those: jax.Array) -> Any:
                merged = list(arrays)
                for index, array in zip(wanted, those, strict=True):
                    merged[index] = array
                return jax.tree.leaves(self._flat(*merged))

            return jax.vjp(of, *(arrays[index] for index in wanted))

        jitted = jax.jit(forward)
        with self.place():
            traced = jitted.trace(*self._shapes)
        leaves, structure = jax.tree.flatten(traced.out_info[1])
        places = _sources(traced.jaxpr.jaxpr, len(self.results))
        leaf_of = dict(zip(places, leaves, strict=True))
        saved = tuple(dict.fromkeys(places))

        @jax.jit
        def pull(values: list[jax.Array], dys: list[jax.Array | None]) -> Any:
            by_place = dict(zip(saved, values, strict=True))
            pull_back = jax.tree.unflatten(structure, [by_place[place] for place in places])
            given = iter(dys)
            return pull_back([_slope(r, given) for r in self.results])

        return Gradient(
            forward=jitted,
            pull=pull,
            places=places,
            saved=saved,
            own=tuple(leaf_of[place] for place in saved if place.source == "own"),
        )

    def _flat(self, *arrays: jax.Array) -> Any:
        those = iter(arrays)

        def value(argument: Argument) -> Any:
            return next(those) if isinstance(argument, Array) else argument.value

        args = [value(argument) for argument in self.signature.positional]
        kwargs = {name: value(argument) for name, argument in self.signature.named}
        return self._function(*args, **kwargs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gradient:
    """The traced halves of a gradient.

    Attributes:
        forward: arrays -> (results, pull-back).
        pull: (what it needs, gradients of the floating results) -> gradients of the arrays.
        places: where each leaf of the pull-back comes from.
        saved: the same, each once: what `pull` takes.
        own: shape and dtype of those that only `forward` has.
    """

    forward: Callable[..., Any]
    pull: Callable[..., Any]
    places: tuple[Saved, ...]
    saved: tuple[Saved, ...]
    own: tuple[jax.ShapeDtypeStruct, ...]


def _form(result: Any) -> Any:
    """Tuples all the way down: what torch's compiler takes for a constant."""
    if isinstance(result, int):
        return result
    if result is None:
        return "none", (), ()
    if isinstance(result, dict):
        return "dict", tuple(result), tuple(map(_form, result.values()))
    if isinstance(result, list):
        return "list", (), tuple(map(_form, result))
    if isinstance(result, tuple):
        return "tuple", (), tuple(map(_form, result))
    raise InputError(
        f"the function returns a {type(result).__name__}",
        hint="wrap it in a function that returns arrays, or tuples, lists and dicts of arrays",
    )


def _slope(result: Any, given: Iterator[jax.Array | None]) -> Any:
    """The gradient of a result as `jax.vjp` wants it; where torch has none it is zero."""
    if not is_floating(result.dtype):
        return np.zeros(result.shape, jax.dtypes.float0)
    slope = next(given)
    return jax.numpy.zeros(result.shape, result.dtype) if slope is None else slope


def is_floating(dtype: Any) -> bool:
    """Whether values of it have gradients."""
    return bool(jax.numpy.issubdtype(dtype, jax.numpy.inexact))


def _sources(jaxpr: Any, results: int) -> tuple[Saved, ...]:
    """An argument or a result that the gradient needs is not carried a second time."""
    given = {id(var): Saved("given", index) for index, var in enumerate(jaxpr.invars)}
    known = {id(var): Saved("result", i) for i, var in enumerate(jaxpr.outvars[:results])} | given
    found: list[Saved] = []
    own = 0
    for var in jaxpr.outvars[results:]:
        place = known.get(id(var))
        if place is None:
            place = known[id(var)] = Saved("own", own)
            own += 1
        found.append(place)
    return tuple(found)
