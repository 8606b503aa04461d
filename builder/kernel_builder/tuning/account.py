"""How a measuring run went, in words."""

from __future__ import annotations

from collections.abc import Sequence

from kernel_builder.tuning.measure import Measured
from kernel_builder.tuning.plan import Progress

_PHASES = ("start", "collect", "compile", "check", "measure")
_COUNTS = {
    "found_compiled": "kernels found compiled",
    "compiled_here": "compiled by the measuring process",
    "restarts": "restarts",
}


def account(progress: Progress, measured: Sequence[Measured]) -> str:
    """How a run went, for people: results, how sure they are, and where the time went."""
    known = {name: progress.effort.get(name) for name in (*_PHASES, *_COUNTS)}
    spent = [f"{name} {known[name]:.1f} s" for name in _PHASES if known[name]]
    counts = [f"{known[name]:.0f} {text}" for name, text in _COUNTS.items() if known[name]]
    errors = [error for item in measured for error in item.noise.values()]
    noise = f"; best times ±{max(errors):.2%} or better" if errors else ""
    total = progress.effort.get("total", 0.0)
    return (
        f"{progress.measured} results measured, {progress.reused} were known"
        f"{'' if progress.finished else '; the budget ran out, run again to go on'}{noise}"
        f"\n{total:.1f} s in all; {', '.join([*spent, *counts])}"
    )
