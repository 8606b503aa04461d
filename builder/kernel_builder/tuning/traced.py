"""Launches of JAX kernels found by tracing: no input is made, nothing runs, no device is needed.

Whatever the public function does is traced as `jax.eval_shape` does it, so the cases of a machine
with a hundred gigabytes can be listed on a laptop. Arrays of a launch are shapes and dtypes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from kernel_builder.tuning.collect import OpenSite, note
from kernel_builder.tuning.runner import Found
from kernel_builder.tuning.workloads import Case, Workload
from kernelhub.dispatch.adapter import Call
from kernelhub.dispatch.capturing import LiveLaunch
from kernelhub.errors import MissingExtra, TuningError
from kernelhub.formats.tree import Config

_INTERPRET = "interpret"
"""The argument by which Pallas kernels are told to be interpreted; what is tuned never is."""


def import_jax() -> Any:
    """The module.

    Raises:
        MissingExtra: it is not installed.
    """
    try:
        import jax
    except ImportError as error:
        raise MissingExtra("tuning JAX kernels", "jax") from error
    return jax


class TracedSite:
    """The launches of a site's cases, with shapes in place of arrays.

    Args:
        site: imported; its inputs are made while tracing, on no device.
        context: makes a context to trace in, such as one that says which chip is meant.
    """

    def __init__(
        self, site: OpenSite, context: Callable[[], AbstractContextManager[Any]] = nullcontext
    ) -> None:
        self._jax = import_jax()
        self._context = context
        self._site = site
        self._known: dict[tuple[str, str], LiveLaunch] = {}

    def collect(self, notice: Callable[[Found], None] = lambda _: None) -> list[Found]:
        """All distinct launches of all cases; see `OpenSite.collect`."""
        found: dict[str, Found] = {}
        for name, workload, case in self._site.workloads:
            seen = self._trace(name, workload, case)
            if not seen:
                raise TuningError(
                    f"workload case {name} launches no tunable",
                    hint=f"tunables of the package: {', '.join(self._site.tunables) or 'none'}",
                )
            for live in seen:
                if note(found, live, name, case):
                    notice(found[live.launch.key])
        return list(found.values())

    def find(self, case: str, kernel: str, point: str) -> LiveLaunch:
        """The launch of a task.

        Raises:
            TuningError: the case no longer makes it.
        """
        if (kernel, point) not in self._known:
            workload, parameters = self._site.workloads.find(case)
            self._trace(case, workload, parameters)
        if (kernel, point) not in self._known:
            raise TuningError(
                f"workload case {case} no longer makes a launch of {kernel} that it made before",
                hint="inputs and the public function must do the same in every process",
            )
        return self._known[kernel, point]

    def _trace(self, name: str, workload: Workload, case: Case) -> list[LiveLaunch]:
        seen: list[LiveLaunch] = []

        def callback(live: LiveLaunch) -> Config:
            seen.append(self._abstract(live))
            return live.default

        def traced() -> None:
            self._site.call(name, workload, case, callback)

        # A function under jax.jit is traced once for its shapes; here its launches are looked for.
        self._jax.clear_caches()
        with self._context():
            self._jax.eval_shape(traced)
        self._known |= {(live.tunable.name, live.launch.key): live for live in seen}
        return seen

    def _abstract(self, live: LiveLaunch) -> LiveLaunch:
        def shape(value: Any) -> Any:
            if hasattr(value, "shape") and hasattr(value, "dtype"):
                return self._jax.ShapeDtypeStruct(value.shape, value.dtype)
            return value

        args, kwargs = self._jax.tree.map(shape, (live.call.args, dict(live.call.kwargs)))
        if _INTERPRET in live.call.arguments:
            args, kwargs = _not_interpreted(live, args, kwargs)
        return LiveLaunch(tunable=live.tunable, call=_call(live.tunable, args, kwargs))


def _not_interpreted(
    live: LiveLaunch, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with `interpret=False`, wherever it stands."""
    place = list(live.call.arguments).index(_INTERPRET)
    if _INTERPRET not in kwargs and place < len(args):
        return (*args[:place], False, *args[place + 1 :]), dict(kwargs)
    return args, {**kwargs, _INTERPRET: False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A launch as a function of its arrays alone.

    Attributes:
        live: the launch, with shapes in place of arrays.
        shapes: of the arrays, in order.
    """

    live: LiveLaunch
    shapes: tuple[Any, ...]

    @classmethod
    def of(cls, live: LiveLaunch) -> Program:
        """The program of a launch that a `TracedSite` found."""
        leaves = import_jax().tree.leaves((live.call.args, dict(live.call.kwargs)))
        return cls(live=live, shapes=tuple(leaf for leaf in leaves if _is_shape(leaf)))

    def function(self, config: Config) -> Callable[..., Any]:
        """The launch with this configuration, of its arrays."""
        tree = import_jax().tree
        leaves, structure = tree.flatten((self.live.call.args, dict(self.live.call.kwargs)))

        def run(*arrays: Any) -> Any:
            given = iter(arrays)
            filled = [next(given) if _is_shape(leaf) else leaf for leaf in leaves]
            args, kwargs = tree.unflatten(structure, filled)
            tunable = self.live.tunable
            return tunable.launch(_call(tunable, args, kwargs), config)

        return run


def _call(tunable: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call:
    """The call of a `@kernelhub.tunable` function, the one kind that takes JAX arrays."""
    made: Call = tunable.call(args, kwargs)
    return made


def _is_shape(leaf: Any) -> bool:
    return hasattr(leaf, "shape") and hasattr(leaf, "dtype")
