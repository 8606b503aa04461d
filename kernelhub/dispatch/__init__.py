"""From the arguments of a launch to the configuration that runs. Imports only the stdlib.

`bind` gives a loaded package its trees; `find_tunables`, `capture` and `forced` are what a tuner
works with; `adapter` is the seam to a new language.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .binding import Binding, bind
    from .capturing import LiveLaunch, capture, forced
    from .finding import find_tunables

_HOME = {
    "Binding": "binding",
    "bind": "binding",
    "LiveLaunch": "capturing",
    "capture": "capturing",
    "find_tunables": "finding",
    "forced": "capturing",
}

__all__ = ["Binding", "LiveLaunch", "bind", "capture", "find_tunables", "forced"]


def __getattr__(name: str) -> Any:
    try:
        home = _HOME[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    return getattr(importlib.import_module(f".{home}", __name__), name)
