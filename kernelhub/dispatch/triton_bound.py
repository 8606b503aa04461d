"""The class that an `Autotuner` becomes when its package is bound.

The class of the object changes, the object does not: everyone who imported the kernel before holds
the same one, and it is still an `Autotuner` (or the author's own subclass of it).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from .capturing import watch, watched_launch

if TYPE_CHECKING:
    from .triton import TritonTunable

_ATTRIBUTE = "_kernelhub_tunable"


def attach(autotuner: Any, tunable: TritonTunable) -> None:
    """Let `tunable` answer this autotuner's question from now on."""
    setattr(autotuner, _ATTRIBUTE, tunable)
    autotuner.__class__ = _bound_class(type(autotuner))  # type: ignore[arg-type]


def bound_tunable(autotuner: Any) -> TritonTunable | None:
    """The tunable that was attached to this autotuner before, if any."""
    tunable: TritonTunable | None = autotuner.__dict__.get(_ATTRIBUTE)
    return tunable


@functools.cache
def _bound_class(base: Any) -> Any:
    # Assignment to __class__ asks for one base and the same layout: no mixin, no new slots.
    members = {"__module__": __name__, "__slots__": (), "_unbound": base, "run": _run}
    return type(f"Bound{base.__name__}", (base,), members)


def _run(self: Any, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
    """Launch; the author's own `run` where there is no tree."""
    tunable: TritonTunable = self._kernelhub_tunable
    ordinary = functools.partial(self._unbound.run, self, *args, grid=grid, warmup=warmup, **kwargs)
    if warmup or not watch.active:
        return ordinary()
    call = tunable.call(args, kwargs, grid)
    return watched_launch(tunable, call, choose=tunable.dispatcher.choose, ordinary=ordinary)
