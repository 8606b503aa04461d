"""The Triton adapter: `@triton.autotune` kernels as they stand.

`TritonAdapter.find` binds each `Autotuner` that a package defines, in place: the object keeps its
identity, its configurations and its hooks, and stays an `Autotuner` for everyone who asks
(torch.compile does). What changes is who answers the question that Triton
answers by benchmarking. Without a tree the answer is Triton's own.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from types import ModuleType
from typing import Any

from triton.compiler.errors import CompileTimeAssertionFailure
from triton.runtime.autotuner import Autotuner, Heuristics
from triton.runtime.driver import driver
from triton.runtime.errors import AutotunerError, OutOfResources, PTXASError

from kernelhub.errors import DispatchError
from kernelhub.formats.tree import Config, DeviceFacts, Literal

from . import features, identity
from .adapter import Call, Resources
from .device import torch_device
from .dispatcher import BoundTree, Dispatcher
from .finding import modules_of
from .launch import Launch, describe
from .triton_bound import attach, bound_tunable
from .triton_compile import Shown, can_be_shown, shown
from .triton_config import OPTIONS, flatten, unflatten
from .triton_launch import Launcher, Untuned

# What Triton's own benchmark forgives: this configuration cannot run, another may.
UNFIT = (OutOfResources, CompileTimeAssertionFailure, PTXASError)


class TritonTunable:
    """One autotuned kernel. See `adapter.Tunable` for the methods."""

    language = "triton"

    def __init__(self, name: str, autotuner: Any, fallback_device: DeviceFacts | None = None):
        self.name = name
        self.autotuner = autotuner
        self.fallback_device = fallback_device
        self.author = copy.copy(autotuner)  # what the author wrote, also once trees are bound
        self.jit = jit_of(autotuner)
        names = dict.fromkeys(key for config in autotuner.configs for key in config.kwargs)
        self.parameters = (*names, *OPTIONS)
        self._tuned = frozenset(self.parameters)
        self.signature = inspect.signature(self.jit.fn)
        parameters = self.signature.parameters.values()
        self.defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
        self.constexprs = frozenset(p.name for p in parameters if "constexpr" in _annotation(p))
        self.dispatcher = Dispatcher(self)
        self._shown: dict[int, Shown | None] = {}
        self._made: dict[int, tuple[Config, Any]] = {}  # by identity; holds on to what it names
        self.launcher: Any = Untuned(self, attach(autotuner, self))

    def give(self, load: Callable[[], Sequence[BoundTree]]) -> None:
        self.dispatcher.give(load)
        self.launcher = Launcher(self, UNFIT)
        self._shown = {}

    def shown(self) -> Shown | None:
        """What compilers are to see of the tree for the current device; None if there is none."""
        if not self.dispatcher.has_trees or not can_be_shown(self):
            return None
        number = self.device_number()
        if number not in self._shown:
            device = torch_device(number) or self.fallback_device
            trees = self.dispatcher.trees_for(device)
            self._shown[number] = shown(self, trees[0]) if trees else None
        return self._shown[number]

    def call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], grid: Any) -> Call:
        """The call `kernel[grid](*args, **kwargs)`."""
        given = {**self.defaults, **dict(zip(self.autotuner.arg_names, args, strict=False))}
        given |= {name: value for name, value in kwargs.items() if name in self.autotuner.arg_names}
        arguments = {
            name: given[name]
            for name in self.autotuner.arg_names
            if name in given and name not in self._tuned
        }
        return Call(args=args, kwargs=dict(kwargs), grid=grid, arguments=arguments)

    def candidates(self, call: Call) -> tuple[Config, ...]:
        return tuple(flatten(config) for config in self._pruned(call))

    def default(self, call: Call) -> Config:
        return flatten(self._pruned(call)[0])

    def admits(self, call: Call, config: Config) -> bool:
        if self.author.early_config_prune is None:
            return True
        wanted = self.triton_config(config)
        return any(wanted == candidate for candidate in self._pruned_early(call))

    def is_feature(self, name: str) -> bool:
        """Whether a scalar argument of this name is a feature."""
        return not self.author.keys or name in self.author.keys or name in self.constexprs

    def matters(self, name: str) -> bool:
        """Whether the choice may depend on the value of a scalar argument of this name."""
        if self.author.early_config_prune is None and self.author.perf_model is None:
            return name in self.tree_features() or name in self.constexprs
        return self.is_feature(name)

    def tree_features(self) -> frozenset[str]:
        """The features that any of the trees asks for."""
        return frozenset(f for bound in self.dispatcher.trees for f in bound.compiled.features)

    def features(self, call: Call) -> Mapping[str, Literal]:
        return features.of(
            call.arguments, key=tuple(self.autotuner.keys), constexprs=self.constexprs
        )

    def facts(self, call: Call) -> Launch:
        arguments = tuple(
            (name, describe(value, constexpr=name in self.constexprs))
            for name, value in call.arguments.items()
        )
        return Launch(kernel=self.name, arguments=arguments)

    def device(self, call: Call) -> DeviceFacts | None:
        # Triton launches on the current device whatever its arguments live on.
        return torch_device(self.device_number()) or self.fallback_device

    def device_number(self) -> int:
        """The current device's ordinal, which Triton keeps compiled kernels by."""
        return 0 if self.interpreted else driver.active.get_current_device()

    def triton_config(self, config: Config) -> Any:
        """The `triton.Config` for a flat configuration; see `triton_config.unflatten`."""
        known = self._made.get(id(config))
        if known is None or known[0] is not config:
            if len(self._made) > 1024:
                self._made.clear()
            known = self._made[id(config)] = config, unflatten(config, self.author.configs)
        return known[1]

    def launch(self, call: Call, config: Config, *, restore: bool = False) -> Any:
        chosen = self.triton_config(config)
        return self._run(call, chosen, restore) if restore else self.run(call, chosen)

    def run(self, call: Call, chosen: Any, *, warmup: bool = False) -> Any:
        """Launch with a `triton.Config`, as `Autotuner.run` does once it has chosen."""
        if chosen.pre_hook is not None and not warmup:
            chosen.pre_hook(self._hook_arguments(call, chosen))
        return self.autotuner.fn.run(
            *call.args, grid=call.grid, warmup=warmup, **call.kwargs, **chosen.all_kwargs()
        )

    def compile(self, call: Call, config: Config) -> Resources:
        if self.interpreted:
            return Resources()
        chosen = self.triton_config(config)
        if chosen.pre_hook is not None:
            # It may set a descriptor's tile, which is compiled in.
            chosen.pre_hook(self._hook_arguments(call, chosen))
        kernel = self.autotuner.fn.warmup(
            *call.args, grid=call.grid, **call.kwargs, **chosen.all_kwargs()
        )
        if hasattr(kernel, "result"):
            kernel = kernel.result()
        return resources_of(kernel)

    def is_unfit(self, error: BaseException) -> bool:
        return isinstance(error, UNFIT)

    def source_hash(self) -> str:
        return identity.source_hash(self.jit)

    @cached_property
    def interpreted(self) -> bool:
        """Whether Triton's interpreter runs this kernel."""
        return type(self.jit).__name__ == "InterpretedFunction"

    def _named(self, call: Call) -> dict[str, Any]:
        return dict(zip(self.autotuner.arg_names, call.args, strict=False))

    def _keywords(self, call: Call) -> dict[str, Any]:
        # The author's functions see the grid and this flag too when Triton itself calls them.
        return {**call.kwargs, "grid": call.grid, "warmup": False}

    def _hook_arguments(self, call: Call, chosen: Any) -> dict[str, Any]:
        return {**self._named(call), **self._keywords(call), **chosen.all_kwargs()}

    def _pruned(self, call: Call) -> list[Any]:
        """The author's pruning, by Triton's own code, which reads the arguments off the object."""
        author = copy.copy(self.author)
        author.nargs = self._named(call)
        try:
            pruned = list(author.prune_configs(self._keywords(call)))
        except AutotunerError as error:
            raise DispatchError(f"{self.name}: {error}") from error
        # Triton 3.6 may round a small top_k down to no configuration at all.
        return pruned or self._pruned_early(call)

    def _pruned_early(self, call: Call) -> list[Any]:
        prune = self.author.early_config_prune
        if prune is None:
            return list(self.author.configs)
        return list(prune(self.author.configs, self._named(call), **self._keywords(call)))

    def _run(self, call: Call, chosen: Any, restore: bool) -> Any:
        """One run as in Triton's benchmark: the author's hooks around it."""
        autotuner = self.autotuner
        arguments = self._hook_arguments(call, chosen)
        if chosen.pre_hook is not None:
            chosen.pre_hook(arguments)
        autotuner.pre_hook(arguments)
        try:
            result = autotuner.fn.run(*call.args, **self._keywords(call), **chosen.all_kwargs())
        except BaseException as error:
            autotuner.post_hook(arguments, exception=error)
            raise
        autotuner.post_hook(arguments, exception=None)
        return result


class TritonAdapter:
    """Finds autotuned kernels. See `adapter.Adapter`."""

    def __init__(self, fallback_device: DeviceFacts | None = None) -> None:
        self.fallback_device = fallback_device

    def find(self, package: ModuleType) -> Mapping[str, TritonTunable]:
        found: dict[str, TritonTunable] = {}
        seen: set[int] = set()
        for name, autotuner in sorted(_autotuners(package), key=_own_name_first):
            if id(autotuner) not in seen:
                seen.add(id(autotuner))
                found[name] = self._bound(name, autotuner)
        return dict(sorted(found.items()))

    def _bound(self, name: str, autotuner: Any) -> TritonTunable:
        known = bound_tunable(autotuner)
        if known is not None:
            known.fallback_device = self.fallback_device or known.fallback_device
            return known
        return TritonTunable(name, autotuner, self.fallback_device)


def resources_of(kernel: Any) -> Resources:
    """What a `CompiledKernel` takes, from its metadata; registers only once it is loaded."""
    metadata = kernel.metadata
    loaded = getattr(kernel, "module", None) is not None
    return Resources(
        shared_memory=metadata.shared,
        threads=metadata.num_warps * metadata.target.warp_size,
        registers=kernel.n_regs if loaded else None,
        spills=kernel.n_spills if loaded else None,
        tensor_memory=getattr(metadata, "tmem_size", None),
    )


def jit_of(kernel: Any) -> Any:
    """The `@triton.jit` function under autotuners and heuristics, in any nesting."""
    while isinstance(kernel, Autotuner | Heuristics):
        kernel = kernel.fn
    return kernel


def _autotuners(package: ModuleType) -> Iterator[tuple[str, Any]]:
    for module in modules_of(package):
        below = module.__name__.removeprefix(package.__name__).lstrip(".")
        for attribute, value in list(vars(module).items()):
            autotuner = _autotuner_in(value)
            if autotuner is not None and jit_of(autotuner).fn.__module__ == module.__name__:
                yield ".".join(filter(None, (below, attribute))), autotuner


def _autotuner_in(value: Any) -> Any:
    """The autotuner in a chain of decorators, None if there is none."""
    while isinstance(value, Heuristics):
        value = value.fn
    return value if isinstance(value, Autotuner) else None


def _own_name_first(found: tuple[str, Any]) -> tuple[bool, str]:
    name, autotuner = found
    return (name.rpartition(".")[2] != jit_of(autotuner).fn.__name__, name)


def _annotation(parameter: inspect.Parameter) -> str:
    annotation = parameter.annotation
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
