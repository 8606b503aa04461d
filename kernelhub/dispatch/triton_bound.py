"""The class that an `Autotuner` becomes when its package is bound.

The class of the object changes, the object does not: everyone who imported the kernel before holds
the same one, and it is still an `Autotuner` (or the author's own subclass of it).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .triton import TritonTunable

_ATTRIBUTE = "_kernelhub_tunable"


def attach(autotuner: Any, tunable: TritonTunable) -> Any:
    """Let `tunable` launch this autotuner's kernel from now on; returns the author's own `run`."""
    unbound = type(autotuner)
    setattr(autotuner, _ATTRIBUTE, tunable)
    autotuner.__class__ = _bound_class(unbound)  # type: ignore[arg-type]
    return unbound.run


def bound_tunable(autotuner: Any) -> TritonTunable | None:
    """The tunable that was attached to this autotuner before, if any."""
    tunable: TritonTunable | None = autotuner.__dict__.get(_ATTRIBUTE)
    return tunable


@functools.cache
def _bound_class(base: Any) -> Any:
    # Assignment to __class__ asks for one base and the same layout: no mixin, no new slots.
    members = {"__module__": __name__, "__slots__": (), "__getitem__": _getitem, "run": _run}
    members |= {"warmup": _warmup, "_unbound": base}
    members |= {name: _shown_attribute(name) for name in ("configs", "early_config_prune")}
    members["perf_model"] = _shown_attribute("perf_model", instead=True)
    return type(f"Bound{base.__name__}", (base,), members)


def _shown_attribute(name: str, *, instead: bool = False) -> property:
    """An attribute of which compilers see the tree's version (or None) where there is a tree."""

    def get(self: Any) -> Any:
        shown = self._kernelhub_tunable.shown()
        if shown is None:
            return self.__dict__[name]
        return None if instead else getattr(shown, name)

    def put(self: Any, value: Any) -> None:
        self.__dict__[name] = value

    return property(get, put)


def _getitem(self: Any, grid: Any) -> Any:
    return functools.partial(self._kernelhub_tunable.launcher.launch, grid)


def _run(self: Any, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
    """Launch, as heuristics around the autotuner call it."""
    tunable: TritonTunable = self._kernelhub_tunable
    if warmup and not tunable.dispatcher.has_trees:
        return self._unbound.run(self, *args, grid=grid, warmup=True, **kwargs)
    if warmup:
        return self.warmup(*args, grid=grid, **kwargs)[0]
    return tunable.launcher.launch(grid, *args, **kwargs)


def _warmup(self: Any, *args: Any, **kwargs: Any) -> Any:
    """Compile what a launch would run: one configuration where there is a tree."""
    tunable: TritonTunable = self._kernelhub_tunable
    if not tunable.dispatcher.has_trees:
        return self._unbound.warmup(self, *args, **kwargs)
    grid = kwargs.pop("grid", None)
    choice = next(tunable.dispatcher.ranking(tunable.call(args, kwargs, grid)))
    config = tunable.triton_config(choice.config)
    return [self.fn.warmup(*args, grid=grid, **kwargs, **config.all_kwargs())]
