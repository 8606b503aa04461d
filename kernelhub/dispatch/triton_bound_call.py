"""Launching through Triton's binder with the configuration that is remembered for such arguments.

The path of kernels that cannot be launched directly (heuristics between autotuner and kernel). One
generated function has the kernel's parameters, looks the configuration up and calls the kernel, so
that all that is added to a plain launch is one key and one lookup.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from triton.runtime.driver import driver

from .capturing import watch
from .fast_code import ABSENT, defaults, function, parameter_list
from .memory import Memory
from .transforms import refuse_transformed
from .triton_prepared import device_getter

if TYPE_CHECKING:
    from .triton import TritonTunable

Decided = tuple[Any, dict[str, Any] | None]
"""A `triton.Config` and what it passes on; None where a hook must run before each launch."""

_TEXT = """
def bound_call(_grid, {parameters}):
    try:
        if _extra or _rest or _watch.active or _drivers.active is not _driver{unseen}:
            raise KeyError
        _config, _options = _known[_get_device(), (), {key}]
        if _options is None:
            raise KeyError
    except (KeyError, AttributeError, TypeError):
        return _another(_grid, ({positional}), _extra, {{{named}}}, _rest)
    _tuner.best_config = _config
    try:
        return _kernel.run({arguments}, grid=_grid, warmup=False, **_options)
    except _unfit:
        return _another(_grid, ({positional}), (), {{{named}}}, {{}})
    except RuntimeError as _error:
        _refuse_transformed({name!r}, ({values}), {{}}, _error)
        raise
"""


def decided_for(config: Any) -> Decided:
    """What is remembered of a `triton.Config`."""
    return config, config.all_kwargs() if config.pre_hook is None else None


def bound_call(
    tunable: TritonTunable,
    memory: Memory,
    another: Callable[..., Any],
    unfit: tuple[type[BaseException], ...],
) -> Any:
    """`launch(grid, *args, **kwargs)` for arguments of the roles that `memory` has learnt.

    Args:
        another: launches what is not known, or does not fit; called with the caller's arguments.
        unfit: exceptions of a configuration that cannot run.
    """
    signature, tuned = tunable.signature, tunable.parameters
    # Heuristics give the parameters that no call has given.
    given = [name for name in signature.parameters if name in memory.roles]
    unseen = [name for name in signature.parameters if name not in {*given, *tuned}]
    by_position = _by_position(signature, given)
    by_name = [name for name in given if name not in by_position]
    text = _TEXT.format(
        name=tunable.name,
        parameters=parameter_list(signature, tuned),
        key=memory.key_text,
        unseen="".join(f" or {name} is not _default_{name}" for name in unseen),
        arguments=", ".join([*by_position, *(f"{name}={name}" for name in by_name)]),
        positional="".join(f"({name!r}, {name}), " for name in by_position),
        values="".join(f"{name}, " for name in given),
        named=", ".join(f"{name!r}: {name}" for name in [*by_name, *unseen]),
    )

    def again(
        grid: Any,
        positional: tuple[tuple[str, Any], ...],
        extra: tuple[Any, ...],
        named: dict[str, Any],
        rest: dict[str, Any],
    ) -> Any:
        """The call as it was made, up to defaults."""
        present = [(name, value) for name, value in positional if value is not ABSENT]
        named = {name: value for name, value in named.items() if value is not ABSENT} | rest
        if len(present) < len(positional):  # what follows a gap was given by name
            return another(grid, *extra, **dict(present), **named)
        return another(grid, *(value for _, value in present), *extra, **named)

    # In the interpreter there may be no driver at all.
    drivers = types.SimpleNamespace(active=None) if tunable.interpreted else driver
    namespace = {
        **defaults(signature),
        "_watch": watch,
        "_drivers": drivers,
        "_driver": drivers.active,
        "_known": memory.known,
        "_get_device": int if tunable.interpreted else device_getter(drivers.active),
        "_another": again,
        "_tuner": tunable.autotuner,
        "_kernel": tunable.autotuner.fn,
        "_unfit": unfit,
        "_refuse_transformed": refuse_transformed,
    }
    return function(text, "bound_call", namespace)


def _by_position(signature: inspect.Signature, given: Collection[str]) -> list[str]:
    """The parameters before the first that is not given or can be given by name only."""
    found = []
    for name, parameter in signature.parameters.items():
        if name not in given or parameter.kind is parameter.KEYWORD_ONLY:
            break
        found.append(name)
    return found
