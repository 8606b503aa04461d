"""Launching a bound Triton kernel.

A kernel without trees runs as Triton has it. One with trees has three paths, each a shortcut to
the one below it:

    fast      every argument as before in all that Triton specialises on: the compiled kernel is
              launched directly, past Triton's binder (see `triton_prepared`)
    ordinary  the features are known, the configuration is remembered: `JITFunction.run`, from one
              generated function where the fast path is not possible (see `triton_bound_call`)
    slow      something is new: the trees are asked, what cannot run is passed over
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from .capturing import watch, watched_launch
from .memory import Memory
from .transforms import refuse_transformed
from .triton_bound_call import bound_call, decided_for
from .triton_prepared import Prepared

if TYPE_CHECKING:
    from .triton import TritonTunable


class Untuned:
    """Launches a kernel that was given no trees: as Triton has it.

    In the interpreter, where nothing can be timed, the author's default runs.
    """

    def __init__(self, tunable: TritonTunable, unbound_run: Any) -> None:
        self.tunable = tunable
        self.unbound_run = unbound_run

    def launch(self, grid: Any, /, *args: Any, **kwargs: Any) -> Any:
        """What `kernel[grid](*args, **kwargs)` does; returns the compiled kernel."""
        if watch.active:
            ordinary = functools.partial(self._ordinary, grid, args, kwargs)
            return launch_watched(self.tunable, grid, args, kwargs, ordinary)
        return self._ordinary(grid, args, kwargs)

    def _ordinary(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        tunable = self.tunable
        try:
            if tunable.interpreted:
                return tunable.dispatcher.launch(tunable.call(args, kwargs, grid))[1]
            return self.unbound_run(tunable.autotuner, *args, grid=grid, warmup=False, **kwargs)
        except RuntimeError as error:
            refuse_transformed(tunable.name, args, kwargs, error)
            raise


class Launcher:
    """Launches a kernel that has trees."""

    def __init__(self, tunable: TritonTunable, unfit: tuple[type[BaseException], ...]) -> None:
        self.tunable = tunable
        self.unfit = unfit
        self.prepared = Prepared(tunable)
        self.launch: Any = self.known_or_new
        """What `kernel[grid](*args, **kwargs)` does; returns the compiled kernel."""

    @functools.cached_property
    def memory(self) -> Memory:
        """The `triton.Config` for arguments. Its keys cover Triton's tuning key."""
        tunable = self.tunable
        return Memory(
            tunable.signature,
            tuned=tunable.parameters,
            is_feature=tunable.matters,
            tree_features=tunable.tree_features(),
            device_number=tunable.device_number,
        )

    def known_or_new(self, grid: Any, /, *args: Any, **kwargs: Any) -> Any:
        """A launch of any signature."""
        try:
            kernel = self.prepared.fast(grid, *args, **kwargs)
            return self.ordinary(grid, args, kwargs) if kernel is None else kernel
        except RuntimeError as error:
            refuse_transformed(self.tunable.name, args, kwargs, error)
            raise

    def ordinary(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The path below `fast`."""
        if watch.active:
            unwatched = functools.partial(self._unwatched, grid, args, kwargs)
            return launch_watched(self.tunable, grid, args, kwargs, unwatched)
        return self._remembered(grid, args, kwargs)

    def _unwatched(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        kernel = self.prepared.known(grid, *args, **kwargs)
        return self._remembered(grid, args, kwargs) if kernel is None else kernel

    def _remembered(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        decided = self.memory.lookup(args, kwargs)
        if decided is None:
            return self.slow(grid, args, kwargs)
        config = decided[0]
        try:
            kernel = self._run(config, grid, args, kwargs)
        except self.unfit:
            return self.slow(grid, args, kwargs)
        self.prepared.learn(config, kernel, args, kwargs)
        return kernel

    def slow(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The path that knows nothing yet."""
        tunable = self.tunable
        call = tunable.call(args, kwargs, grid)
        choice, kernel = tunable.dispatcher.launch(call)
        config = tunable.triton_config(choice.config)
        tunable.autotuner.best_config = config
        if self.memory.learn(call.arguments):
            self.prepared.generate(self.memory.roles)
            self.launch = self.known_or_new
            if not self.prepared.possible and self.memory.key_text:
                self.launch = bound_call(tunable, self.memory, self.known_or_new, self.unfit)
        self.memory.remember(decided_for(config), args, kwargs)
        self.prepared.learn(config, kernel, args, kwargs)
        return kernel

    def _run(self, config: Any, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        tunable = self.tunable
        tunable.autotuner.best_config = config
        if config.pre_hook is not None:
            return tunable.run(tunable.call(args, kwargs, grid), config)
        return tunable.autotuner.fn.run(
            *args, grid=grid, warmup=False, **kwargs, **config.all_kwargs()
        )


def launch_watched(
    tunable: TritonTunable, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any], ordinary: Any
) -> Any:
    """A launch while somebody captures, forces or records."""
    call = tunable.call(args, kwargs, grid)
    return watched_launch(tunable, call, choose=tunable.dispatcher.choose, ordinary=ordinary)
