"""Launching in the interpreter: one at a time, with errors that name the kernel."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from . import bounds
from .faults import AssertionFailed, KernelFault, NotInterpretable

# Reentrant: a hook of one launch may launch another kernel.
_lock = threading.RLock()


def launching(method: Callable[..., Any], interpreter_error: type[Exception]) -> Callable[..., Any]:
    """Wrap `GridExecutor.__call__`: serialised, silent on inf and nan, our faults unwrapped."""

    @functools.wraps(method)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        with _lock, np.errstate(all="ignore"):  # a GPU does not warn of inf - inf
            outer = (bounds.LAUNCH.kernel, bounds.LAUNCH.spans)
            bounds.LAUNCH.kernel, bounds.LAUNCH.spans = self.fn.__name__, None
            try:
                return method(self, *args, **kwargs)
            except interpreter_error as error:
                fault = next((e for e in causes(error) if isinstance(e, KernelFault)), None)
                if fault is None:
                    raise
                raise fault from None
            finally:
                bounds.LAUNCH.kernel, bounds.LAUNCH.spans = outer

    return wrapper


def receiving(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `GridExecutor._init_args_hst`: learn the name and extent of each tensor argument."""

    @functools.wraps(method)
    def wrapper(self: Any, args: Any, kwargs: Any) -> Any:
        host_args, host_kwargs = method(self, args, kwargs)
        named = [*zip(self.arg_names, host_args, strict=False), *host_kwargs.items()]
        bounds.LAUNCH.spans = bounds.spans_of(iter(named))
        return host_args, host_kwargs

    return wrapper


def converting(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `_implicit_cvt`, which makes the interpreter's values of launch arguments."""

    @functools.wraps(function)
    def wrapper(argument: Any) -> Any:
        return bounds.mark(argument, function(argument))

    return wrapper


def boolean(function: Callable[..., Any], interpreter: Any) -> Callable[..., Any]:
    """Wrap `_implicit_cvt`: a Python bool is an int1, not an int that does not fit in one."""
    types = interpreter.tl

    @functools.wraps(function)
    def wrapper(argument: Any) -> Any:
        if not isinstance(argument, bool):
            return function(argument)
        data = np.array([argument], dtype=np.bool_)
        return types.tensor(interpreter.TensorHandle(data, types.int1), types.int1)

    return wrapper


def create_assert(self: Any, condition: Any, message: Any) -> None:
    """A `device_assert` that fails, naming the program that it failed in."""
    if np.all(condition.data):
        return
    raise AssertionFailed(
        f"kernel {bounds.LAUNCH.kernel!r}: device_assert failed in program "
        f"{getattr(self, 'grid_idx', None)}: {message}"
    )


def refusing(what: str) -> Callable[..., Any]:
    """A stand-in for what exists only on a GPU: raises when it is used."""

    def refuse(*_args: Any, **_kwargs: Any) -> Any:
        raise NotInterpretable(
            f"kernel {bounds.LAUNCH.kernel!r} uses {what}, which exists only on a GPU",
            hint="use the function of triton.language, or choose a variant without it on the CPU",
        )

    return refuse


def compiled_launch(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `JITFunction.run`: say why a kernel that was decorated to compile cannot run here."""

    @functools.wraps(method)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, *args, **kwargs)
        except RuntimeError as error:
            if "active drivers" not in str(error):
                raise
            raise NotInterpretable(
                f"kernel {self.fn.__name__!r} was decorated to be compiled, and there is no GPU",
                hint="it is a Gluon kernel, or its module was imported before the interpreter "
                "was enabled: enable it first",
            ) from error

    return wrapper


def benchmarking(method: Callable[..., Any]) -> Callable[..., Any]:
    """Stands in for `Autotuner._bench`: times nothing, so the first configuration is chosen."""

    @functools.wraps(method)
    def wrapper(self: Any, *_args: Any, config: Any, **_meta: Any) -> list[float]:
        refused = self.__dict__.get(_REFUSED, ())
        return [float("inf") if config in refused else 0.0] * 3

    return wrapper


def tuned_launch(
    method: Callable[..., Any], interpreter_error: type[Exception]
) -> Callable[..., Any]:
    """Wrap `Autotuner.run`: what a `static_assert` refuses gives way to the next configuration."""

    @functools.wraps(method)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        while True:
            try:
                return method(self, *args, **kwargs)
            except interpreter_error as error:  # noqa: PERF203 - the loop is for this
                refused = self.__dict__.setdefault(_REFUSED, [])
                failed = self.best_config
                static = any(type(cause) is AssertionError for cause in causes(error))
                if not static or failed in refused or len(refused) + 1 >= len(self.configs):
                    raise
                refused.append(failed)
                for key in [key for key, config in self.cache.items() if config is failed]:
                    del self.cache[key]

    return wrapper


_REFUSED = "_kernelhub_refused"


def causes(error: BaseException) -> Iterator[BaseException]:
    """An error and what it was raised from, outermost first."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__
