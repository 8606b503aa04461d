"""Whether torch is loaded, asked once, so that functions without torch never pay for it."""

from __future__ import annotations

import sys


def _never() -> bool:
    return False


# Replaced once torch is there: torch.compile knows its own function by identity.
is_compiling = _never


def torch_is_there() -> bool:
    """Whether torch is loaded now."""
    return "torch" in sys.modules


def look_for_torch() -> None:
    """Use torch's answer from now on if torch is loaded."""
    global is_compiling
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "compiler"):
        is_compiling = torch.compiler.is_compiling
