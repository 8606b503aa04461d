"""Whether torch is loaded, asked once, so that functions without torch never pay for it."""

from __future__ import annotations

import sys


def _never() -> bool:
    return False


def _zero() -> int:
    return 0


# Module globals, replaced once torch is there: torch.compile knows its own function by identity.
is_compiling = _never
current_device = _zero


def torch_is_there() -> bool:
    """Whether torch is loaded now."""
    return "torch" in sys.modules


def look_for_torch() -> None:
    """Use torch's answers from now on if torch is loaded."""
    global is_compiling, current_device
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "compiler"):
        is_compiling = torch.compiler.is_compiling
        if torch.cuda.is_available():
            current_device = torch.cuda.current_device
