"""Switching a process into Triton's interpreter.

`@triton.jit` looks at the mode when it decorates, and `import triton` decorates `tl.max`, `tl.sum`
and their like. So the mode is set before that import; where triton is there already, those library
functions are decorated again, which is sound as long as nothing in the process can compile.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable
from typing import Any

from kernelhub.errors import LoadError, MissingExtra

VARIABLE = "TRITON_INTERPRET"
_REMEDY = f"set {VARIABLE}=1 before triton is first imported, or load the kernel first"


def enter() -> None:
    """Set the mode; repair triton's own library functions where they were decorated to compile.

    Raises:
        MissingExtra: triton, torch or numpy is not installed.
        LoadError: triton compiles for a device in this process already.
    """
    if any(importlib.util.find_spec(name) is None for name in ("numpy", "torch", "triton")):
        raise MissingExtra("Triton's interpreter", "triton")
    started = sys.modules.get("triton")
    if started is not None and not started.knobs.runtime.interpret:
        _refuse_if_compiling()
    os.environ[VARIABLE] = "1"  # Triton's documented switch; children are to agree with us
    importlib.import_module("triton.runtime.interpreter")
    if not sys.modules["triton"].knobs.runtime.interpret:
        raise LoadError("triton was told in this process not to interpret", hint=_REMEDY)
    if started is not None:
        _redecorate_library()


def _refuse_if_compiling() -> None:
    driver = importlib.import_module("triton.runtime").driver
    try:
        target = driver.active.get_current_target()
    except RuntimeError:  # "0 active drivers": no GPU, so nothing here was ever compiled
        return
    raise LoadError(
        f"triton already compiles for {target} in this process, so it cannot interpret as well",
        hint=_REMEDY,
    )


def _redecorate_library() -> None:
    """Replace each compiled function of triton's library by its interpreted counterpart."""
    jit = importlib.import_module("triton.runtime.jit").JITFunction
    interpreted = importlib.import_module("triton.runtime.interpreter").InterpretedFunction
    again: dict[int, Any] = {}

    def counterpart(function: Any) -> Any:
        return again.setdefault(id(function), interpreted(function.fn))

    for name, module in list(sys.modules.items()):
        if name.startswith("triton."):
            for attribute, value in list(vars(module).items()):
                if type(value) is jit:
                    setattr(module, attribute, counterpart(value))
    tensor = importlib.import_module("triton.language").tensor
    for attribute, value in list(vars(tensor).items()):
        if type(value) is jit:
            setattr(tensor, attribute, _method(counterpart(value)))


def _method(function: Any) -> Callable[..., Any]:
    def method(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return method
