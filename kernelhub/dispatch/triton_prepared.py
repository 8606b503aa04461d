"""Launching a compiled Triton kernel directly when nothing that Triton looks at has changed.

`JITFunction.run` binds the arguments, works out what each specialises on, makes a key and looks the
compiled kernel up. Here one generated function does all of it: its key holds, for each argument, at
least what Triton's specialisation depends on, and its guard the rest:

    tensor         dtype, whether its address is a multiple of 16
    int, bool, str value and type (so also == 1, multiple of 16, 32 or 64 bits)
    float          type; value too where it is compiled in
    None           that it is None
    device         the current one
    kernel         its source hash, the globals that it uses, hooks before its runs, its debug flag
    process        driver, launch hooks, debug and instrumentation settings, pipeline hooks

Anything else (tensor descriptors, tuples, launch options given by the caller, heuristics between
autotuner and kernel, hooks of a configuration, AMD's range specialisation, the interpreter) takes
Triton's own path.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from triton import knobs
from triton.backends.compiler import BaseBackend
from triton.compiler.compiler import CompiledKernel, make_backend
from triton.runtime.driver import driver
from triton.runtime.jit import JITFunction

from . import features
from .capturing import watch
from .fast_code import (
    OTHER,
    defaults,
    function,
    guard_key,
    is_plain,
    parameter_list,
)

if TYPE_CHECKING:
    from .triton import TritonTunable

MOST_REMEMBERED = 1024
_RUN = JITFunction.run
_ABSENT = object()

_TEXT = """
def {name}(_grid, {parameters}):
    if _extra or _rest{watched}:
        return None
    try:
        _device = _get_device()
        _launch, _function, _packed, _kernel, _config, {tuned} = _memo[_device, {key}]
        _runtime = _knobs.runtime
        _enter, _exit = _runtime.launch_enter_hook, _runtime.launch_exit_hook
        if (
            _drivers.active is not _driver
            or _jit.hash is not _hash or _jit.pre_run_hooks or _jit.debug is not _jit_debug
            or _runtime.debug is not _debug or _runtime.add_stages_inspection_hook is not None
            or (_enter is not None and _enter.calls) or (_exit is not None and _exit.calls)
            or JITFunction.run is not _RUN{process}{used}
        ):
            return None
    except (KeyError, AttributeError, TypeError, RuntimeError):
        return None
    if _callable(_grid):
        _grid = _grid({meta})
    _rank = _len(_grid)
    _tuner.best_config = _config
    _launch(
        _grid[0], _grid[1] if _rank > 1 else 1, _grid[2] if _rank > 2 else 1,
        _get_stream(_device), _function, _packed, None, None, None, {arguments}
    )
    return _kernel
"""
_KEY_TEXT = """
def key_of({parameters}):
    return None if _extra or _rest else (_get_device(), {key})
"""


def never(*_: Any, **__: Any) -> None:
    """The fast path of a kernel that has none."""


class Prepared:
    """The fast path of one kernel: `fast(grid, *args, **kwargs)` launches, or returns None.

    `known` is the same for a launch that whoever watches has already seen.
    """

    def __init__(self, tunable: TritonTunable) -> None:
        self.tunable = tunable
        self.fast: Any = never
        self.known: Any = never
        self.roles: dict[str, str] = {}
        self.memo: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self._state: tuple[Any, ...] = ()
        self._entries: dict[Any, tuple[Any, ...]] = {}  # one for each kernel, shared by its keys
        jit = tunable.jit
        self.possible = (
            tunable.autotuner.fn is jit
            and isinstance(jit, JITFunction)
            and type(jit).run is _RUN
            and is_plain(tunable.signature)
            and tunable.dispatcher.has_trees
        )

    def learn(
        self, config: Any, kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Remember a kernel that was just launched on the ordinary path."""
        if not self.possible or not self.roles:
            return
        if type(kernel) is not CompiledKernel or config.pre_hook is not None:
            return
        if self._state != self._current_state():
            self.generate(self.roles)
        fast = self.fast  # one generation's key and memo, whatever another thread does meanwhile
        if fast is never:
            return
        scope = fast.__globals__
        memo = scope["_memo"]
        try:
            key = scope["key_of"](*args, **kwargs)
            hash(key)
        except (AttributeError, TypeError):  # not what it was so far; the slow path learns that
            return
        if key is None:
            return
        if len(memo) >= MOST_REMEMBERED:
            memo.clear()
        entry = self._entries.get(kernel)
        if entry is None or entry[4] is not config:
            entry = self._entries[kernel] = self._entry(kernel, config)
        memo[key] = entry

    def _entry(self, kernel: Any, config: Any) -> tuple[Any, ...]:
        """What the generated function unpacks."""
        given = config.all_kwargs()
        tuned = (given.get(n, self.tunable.defaults.get(n)) for n in self._tuned())
        return (kernel.run, kernel.function, kernel.packed_metadata, kernel, config, *tuned)

    def generate(self, roles: Mapping[str, str]) -> None:
        """Make the fast path for arguments of these roles; forgets what was learnt before."""
        self.roles, self.memo, self.fast, self.known = dict(roles), {}, never, never
        self._entries = {}
        if not self.possible:
            return
        self._state = self._current_state()
        plain = [name for name in self.tunable.signature.parameters if name not in self._tuned()]
        known = OTHER not in roles.values() and list(roles) == plain
        if not known or not _specialises_plainly():
            return
        tunable, jit = self.tunable, self.tunable.jit
        shapes = features.shaped(tunable.tree_features(), self.roles)
        key = ", ".join(
            guard_key(name, role, shape=name in shapes) for name, role in self.roles.items()
        )
        names = list(tunable.signature.parameters)
        used = _used_globals(jit)
        parts = {
            "parameters": parameter_list(tunable.signature, tunable.parameters),
            "key": key,
            "tuned": "".join(f"{name}, " for name in self._tuned()) or "*_",
            "meta": "{" + ", ".join(f"'{name}': {name}" for name in names) + "}",
            "arguments": ", ".join(names),
            "process": "".join(
                f"\n            or _knobs.compilation.{name} != _state_{name}"
                for name in _COMPILATION
            ),
            "used": "".join(
                f"\n            or _globals_{i}.get({name!r}) is not _value_{i}"
                for i, (name, _, _) in enumerate(used)
            ),
        }
        text = (
            _TEXT.format(name="fast", watched=" or _watch.active", **parts)
            + _TEXT.format(name="known", watched="", **parts)
            + _KEY_TEXT.format(**parts)
        )
        active = driver.active
        namespace = {
            **defaults(tunable.signature),
            **{f"_state_{name}": getattr(knobs.compilation, name) for name in _COMPILATION},
            **{f"_globals_{i}": scope for i, (_, scope, _) in enumerate(used)},
            **{f"_value_{i}": value for i, (_, _, value) in enumerate(used)},
            "_len": len,  # kernels have parameters called like that
            "_callable": callable,
            "_watch": watch,
            "_memo": self.memo,
            "_knobs": knobs,
            "_drivers": driver,
            "_driver": active,
            "_get_device": device_getter(active),
            "_get_stream": active.get_current_stream,
            "_jit": jit,
            "_hash": jit.hash,
            "_jit_debug": jit.debug,
            "_debug": knobs.runtime.debug,
            "_tuner": tunable.autotuner,
            "JITFunction": JITFunction,
            "_RUN": _RUN,
        }
        self.fast = function(text, "fast", namespace)
        self.known = self.fast.__globals__["known"]

    def _current_state(self) -> tuple[Any, ...]:
        jit = self.tunable.jit
        values = (getattr(knobs.compilation, name) for name in _COMPILATION)
        return (driver.active, jit.hash, jit.debug, knobs.runtime.debug, *values)

    def _tuned(self) -> list[str]:
        tuned = self.tunable.parameters
        return [name for name in self.tunable.signature.parameters if name in tuned]


# Settings that `JITFunction.run` reads at each launch and puts into the key; differ by version.
_COMPILATION = tuple(
    name
    for name in ("instrumentation_mode", "fpsan_homomorphic_casts")
    if hasattr(type(knobs.compilation), "__annotations__")
    and name in type(knobs.compilation).__annotations__
)


def device_getter(active: Any) -> Any:
    """The driver's function for the current device, without torch's check for initialisation."""
    getter = active.get_current_device
    if getattr(getter, "__module__", "") == "torch.cuda":
        import torch

        if torch.cuda.is_initialized():
            return getattr(torch._C, "_cuda_getDevice", getter)
    return getter


def _specialises_plainly() -> bool:
    """Whether the backend specialises on what Triton's base class does and no more."""
    backend = type(make_backend(driver.active.get_current_target()))
    return all(
        getattr(backend, name) is getattr(BaseBackend, name)
        for name in ("get_int_specialization", "get_tensor_specialization")
    )


def _used_globals(jit: Any) -> list[tuple[str, dict[str, Any], Any]]:
    """(name, its module's namespace, its value now) of each global that the kernel uses.

    Triton compares values at each launch and refuses a changed one. Here the same object must be
    there, else Triton's own path decides.
    """
    return [
        (name, scope, scope.get(name, _ABSENT))
        for (name, _), (_, scope) in jit.used_global_vals.items()
    ]
