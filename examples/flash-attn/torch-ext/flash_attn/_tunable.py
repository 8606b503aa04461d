"""`kernelhub.tunable`, or under a loader without kernelhub a stand-in that runs the default."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

try:
    from kernelhub import tunable
except ImportError:

    def tunable(*, default: Callable[..., Any], **_: Any) -> Callable[..., Any]:
        def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
            signature = inspect.signature(function)

            @functools.wraps(function)
            def call(*args: Any, **kwargs: Any) -> Any:
                arguments = signature.bind_partial(*args, **kwargs).arguments
                return function(*args, **{**default(arguments), **kwargs})

            return call

        return decorate


__all__ = ["tunable"]
