"""`@kernelhub.tunable`: any callable whose configuration arrives as keyword arguments.

    @tunable(
        space={"block": powers_of_two(64, 1024), "algorithm": {"split": split, "fused": fused}},
        default={"block": 256, "algorithm": "fused"},
        key=["n"],
    )
    def scan(x, n, *, block, algorithm):
        return algorithm(x, n, block)

Needs the standard library only. Shapes and dtypes are read off the arguments, so the choice works
under `jax.jit`, `jax.vmap` and `jax.grad`: it is made while they trace, from static shapes (those
of one example under `vmap`, of one shard under `shard_map`), and a compiled program holds nothing
of it. `jax_arrays` says how the device is found then.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from kernelhub.errors import DispatchError, InputError
from kernelhub.formats.tree import Config, DeviceFacts, Literal

from . import features as feature_names
from . import identity, jax_arrays, tracing
from .adapter import Call, Resources
from .capturing import watch, watched_launch
from .device import torch_device
from .dispatcher import BoundTree, Dispatcher
from .launch import Launch, describe
from .memory import Memory
from .space import Condition, Space, choices, config_key, powers_of_two

__all__ = ["FunctionTunable", "choices", "powers_of_two", "tunable"]

Values: TypeAlias = "Sequence[Literal] | Mapping[str, Callable[..., Any]]"
Default: TypeAlias = "Config | Callable[[Mapping[str, Any]], Config]"

# Named, not imported: the errors by which compilers say that a configuration does not fit.
_UNFIT = frozenset({"OutOfResources", "CompileTimeAssertionFailure", "PTXASError"})


def tunable(
    *,
    configs: Sequence[Config] = (),
    space: Mapping[str, Values] | None = None,
    conditions: Sequence[Condition] = (),
    default: Default | None = None,
    features: Callable[[Mapping[str, Any]], Mapping[str, Literal]] | None = None,
    key: Sequence[str] = (),
) -> Callable[[Callable[..., Any]], FunctionTunable]:
    """Declare that a function takes a configuration that may be chosen for each call.

    Args:
        configs: the configurations, each a mapping of keyword arguments to literals. Either this
            or `space`.
        space: parameter name to its values. A mapping of names to functions offers alternative
            implementations: the configuration holds the name, the function receives the function.
        conditions: with `space`: a configuration may run only if all of these hold for it.
        default: the configuration to use where nothing better is known, or a function of the
            arguments (by name) that returns it. Left out: the first of `configs` or `space`.
        features: a function of the arguments (by name) that adds features of your own to those of
            `dispatch.features`; it runs on each new call signature and must be cheap.
        key: names of the scalar arguments that matter to the choice; left out, all do.

    Raises:
        InputError: the declaration contradicts itself or the function.
    """

    def decorate(function: Callable[..., Any]) -> FunctionTunable:
        if bool(configs) == (space is not None):
            raise InputError(f"{function.__qualname__}: give either configs or space")
        declared: tuple[Config, ...] | Space
        implementations: dict[str, Mapping[str, Callable[..., Any]]] = {}
        if space is None:
            declared = tuple(dict(config) for config in configs)
        else:
            implementations = {n: v for n, v in space.items() if isinstance(v, Mapping)}
            parameters = {name: tuple(values) for name, values in space.items()}
            declared = Space(parameters=parameters, conditions=tuple(conditions))
        return FunctionTunable(
            function,
            declared=declared,
            implementations=implementations,
            default=default,
            extra_features=features,
            key=tuple(key),
        )

    return decorate


class FunctionTunable:
    """A decorated function. Calling it chooses a configuration and runs the function with it.

    A keyword argument of the configuration that the caller gives wins over the chosen one.
    See `adapter.Tunable` for the methods.
    """

    language = "python"

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        declared: tuple[Config, ...] | Space,
        implementations: Mapping[str, Mapping[str, Callable[..., Any]]],
        default: Default | None,
        extra_features: Callable[[Mapping[str, Any]], Mapping[str, Literal]] | None,
        key: tuple[str, ...],
    ) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.name = f"{function.__module__}.{function.__qualname__}"
        self.declared = declared
        self.implementations = implementations
        self.key = key
        self.fallback_device: DeviceFacts | None = None
        self._extra_features = extra_features
        self._default = default
        self._signature = inspect.signature(function)
        self.parameters = self._check()
        self.dispatcher = Dispatcher(self)
        self._memory: Memory | None = None
        self._plan: tuple[Any, ...] | None = None
        tracing.look_for_torch()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if tracing.is_compiling():
            return self.function(*args, **{**self.traced_config(args, kwargs), **kwargs})
        if watch.active:
            return watched_launch(
                self,
                self.call(args, kwargs),
                choose=self.dispatcher.choose,
                ordinary=functools.partial(self._slow, args, kwargs),
            )
        memory = self._memory
        resolved = None if memory is None else memory.lookup(args, kwargs)
        if resolved is None:
            return self._slow(args, kwargs)
        try:
            return self.function(*args, **{**resolved, **kwargs})
        except Exception as error:
            if not self.is_unfit(error):
                raise
            return self._slow(args, kwargs)

    def give(self, load: Callable[[], Sequence[BoundTree]]) -> None:
        self.dispatcher.give(load)
        self._memory = None
        # Trees are parsed at once where torch.compile may come: while it traces it is too late.
        self._plan = self._plan_for_tracing() if tracing.torch_is_there() else None

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call:
        """The call `function(*args, **kwargs)`.

        Raises:
            TypeError: the arguments do not fit the function's signature.
        """
        bound = self._signature.bind_partial(*args, **kwargs)
        bound.apply_defaults()
        arguments = {n: v for n, v in bound.arguments.items() if n not in self.parameters}
        return Call(args=args, kwargs=dict(kwargs), arguments=arguments)

    def candidates(self, call: Call) -> tuple[Config, ...]:
        return tuple(self.declared)

    def default(self, call: Call) -> Config:
        if self._default is None:
            return next(iter(self.declared))
        return self._default(call.arguments) if callable(self._default) else self._default

    def admits(self, call: Call, config: Config) -> bool:
        self._resolved(config)
        return self._resolved_or_none(config) is not None

    def features(self, call: Call) -> Mapping[str, Literal]:
        found = feature_names.of(call.arguments, key=self.key, constexprs=())
        return (
            found
            if self._extra_features is None
            else found | dict(self._extra_features(call.arguments))
        )

    def facts(self, call: Call) -> Launch:
        arguments = tuple((name, describe(value)) for name, value in call.arguments.items())
        return Launch(kernel=self.name, arguments=arguments)

    def device(self, call: Call) -> DeviceFacts | None:
        arrays = jax_arrays.arrays_of(call.arguments)
        if arrays:
            return jax_arrays.device_facts(arrays)
        for value in call.arguments.values():
            device: Any = getattr(value, "device", None)
            if getattr(device, "type", None) == "cuda":
                return torch_device(device.index or 0) or self.fallback_device
        return self.fallback_device

    def launch(self, call: Call, config: Config, *, restore: bool = False) -> Any:
        return self.function(*call.args, **{**self._resolved(config), **call.kwargs})

    def compile(self, call: Call, config: Config) -> Resources:
        """Compiles what JAX arrays are given to; other functions compile when they run."""
        arrays = [v for v in (*call.args, *call.kwargs.values()) if hasattr(v, "aval")]
        if arrays:
            _compile_with_jax(functools.partial(self.function, **self._resolved(config)), call)
        return Resources()

    def is_unfit(self, error: BaseException) -> bool:
        return type(error).__name__ in _UNFIT or "RESOURCE_EXHAUSTED" in str(error)

    def source_hash(self) -> str:
        also = [f for named in self.implementations.values() for f in named.values()]
        return identity.source_hash(self.function, also=also)

    def traced_config(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The configuration while torch.compile traces the call: plain code, nothing remembered."""
        call, plan = self.call(args, kwargs), self._plan
        if plan is None:
            return self._resolved(self.default(call))
        names, choose, configs = plan
        values = self.features(call)
        for index in choose(*[values[name] for name in names]):
            if configs[index] is not None:
                chosen: dict[str, Any] = configs[index]
                return chosen
        return self._resolved(self.default(call))

    def _plan_for_tracing(self) -> tuple[Any, ...] | None:
        """(features, tree, configurations as keyword arguments) for this machine's device."""
        trees = self.dispatcher.trees_for(self.fallback_device)
        if not trees:
            return None
        compiled = trees[0].compiled
        resolved = [self._resolved_or_none(config) for config in compiled.tree.configs]
        return compiled.features, compiled.choose, resolved

    def _resolved_or_none(self, config: Config) -> dict[str, Any] | None:
        conditions = self.declared.conditions if isinstance(self.declared, Space) else ()
        try:
            resolved = self._resolved(config)
        except DispatchError:  # a tree of another version of this function
            return None
        return resolved if all(condition(config) for condition in conditions) else None

    def _slow(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        if kwargs.keys() >= set(self.parameters):  # the caller has chosen
            return self.function(*args, **kwargs)
        call = self.call(args, kwargs)
        arrays = jax_arrays.arrays_of(call.arguments)
        if arrays:
            # Not remembered: where arrays run depends on more than the arguments.
            return self._with_jax(call, arrays)
        choice, result = self.dispatcher.launch(call)
        if self._memory is None:
            self._memory = self._new_memory()
        self._memory.learn(call.arguments)
        self._memory.remember(self._resolved(choice.config), args, kwargs)
        return result

    def _with_jax(self, call: Call, arrays: Mapping[str, Any]) -> Any:
        unknown = jax_arrays.symbolic(arrays)
        if unknown is None:
            return self.dispatcher.launch(call)[1]
        trees = self.dispatcher.trees_for(self.device(call))
        if trees or callable(self._default) or self._extra_features is not None:
            raise DispatchError(
                f"{self.name}: {unknown}, and the choice of a configuration needs its value",
                hint="export with fixed sizes, or give the configuration with the call: "
                + ", ".join(f"{name}=..." for name in self.parameters),
            )
        return self.launch(call, self.default(call))

    def _new_memory(self) -> Memory:
        trees = self.dispatcher.trees
        # Functions of the author's own may look at anything.
        anything = self._extra_features is not None or callable(self._default)
        used = frozenset(name for bound in trees for name in bound.compiled.features)
        return Memory(
            self._signature,
            tuned=self.parameters,
            is_feature=lambda name: anything or not self.key or name in self.key,
            tree_features=None if anything else used,
            device_number=None,
        )

    def _resolved(self, config: Config) -> dict[str, Any]:
        resolved: dict[str, Any] = dict(config)
        for name, functions in self.implementations.items():
            value: Any = resolved.get(name)
            if value not in functions:
                raise DispatchError(
                    f"{self.name}: {name}={value!r} is not one of {', '.join(sorted(functions))}"
                )
            resolved[name] = functions[value]
        if set(resolved) != set(self.parameters):
            raise DispatchError(
                f"{self.name}: {dict(config)} does not set exactly {', '.join(self.parameters)}"
            )
        return resolved

    def _check(self) -> tuple[str, ...]:
        """The configuration's parameter names, once the declaration is known to be sound."""
        where = self.function.__qualname__
        if isinstance(self.declared, Space):
            names = tuple(self.declared.parameters)
        else:
            names = tuple(self.declared[0])
            if any(set(config) != set(names) for config in self.declared):
                raise InputError(f"{where}: all configurations must set the same parameters")
        if next(iter(self.declared), None) is None:
            raise InputError(f"{where}: no configuration fulfils the conditions")
        parameters = self._signature.parameters
        open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        unknown = [name for name in names if name not in parameters and not open_ended]
        if unknown:
            raise InputError(f"{where} takes no argument {', '.join(unknown)}")
        if isinstance(self._default, Mapping) and not self._admits(self._default):
            raise InputError(f"{where}: default {dict(self._default)} is not a configuration")
        return names

    def _admits(self, config: Config) -> bool:
        if isinstance(self.declared, Space):
            return self.declared.admits(config)
        return config_key(config) in map(config_key, self.declared)


def _compile_with_jax(function: Callable[..., Any], call: Call) -> None:
    import jax

    static = [i for i, value in enumerate(call.args) if not hasattr(value, "aval")]
    named = [name for name, value in call.kwargs.items() if not hasattr(value, "aval")]
    jitted = jax.jit(function, static_argnums=static, static_argnames=named)
    jitted.lower(*call.args, **call.kwargs).compile()
