"""Triton's `Config` objects as flat configurations, and back.

A flat configuration holds the keyword arguments of the kernel and, beside them, the launch options
(`num_warps`, `num_stages`, `num_ctas`, `maxnreg`, and `ir_override` where it is used). A value that
is not a literal, such as `tl.float16`, stands there by its name; only the author's can have one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from triton.runtime.autotuner import Config as TritonConfig

from kernelhub.errors import DispatchError
from kernelhub.formats.tree import Config, Literal

from .launch import stable_name
from .space import config_key

OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg", "ir_override")
_DEFAULTS: Config = {"num_warps": 4, "num_stages": 3, "num_ctas": 1}


def flatten(config: Any) -> dict[str, Literal]:
    """The flat form of a `triton.Config`."""
    return {name: _literal(value) for name, value in config.all_kwargs().items()}


def unflatten(config: Config, authored: Iterable[Any]) -> Any:
    """The `triton.Config` for a flat configuration: the author's own one where there is one.

    Launch options that are left out have the values that `triton.Config` gives them.

    A configuration that the author does not list is made anew, with the pre_hook that all of the
    author's configurations share.

    Raises:
        DispatchError: the author does not list it and it cannot be made: other parameters than
            the author's, or the author's configurations differ in their pre_hook.
    """
    authored = tuple(authored)
    config = {**_DEFAULTS, **config}
    wanted = config_key(config)
    for candidate in authored:
        if config_key(flatten(candidate)) == wanted:
            return candidate
    names = {name for candidate in authored for name in candidate.kwargs}
    foreign = sorted(config.keys() - names - set(OPTIONS))
    missing = sorted(names - config.keys())
    hooks = {candidate.pre_hook for candidate in authored}
    if foreign or missing or len(hooks) != 1:
        raise DispatchError(
            f"configuration {dict(config)} is not one of the author's and cannot be made: "
            + _reason(foreign, missing)
        )
    options = {name: config[name] for name in OPTIONS if name in config}
    kwargs = {name: value for name, value in config.items() if name not in OPTIONS}
    return TritonConfig(kwargs, pre_hook=_only(hooks), **options)


def _reason(foreign: list[str], missing: list[str]) -> str:
    if foreign:
        return f"the kernel has no tunable parameter {', '.join(foreign)}"
    if missing:
        return f"it does not set {', '.join(missing)}"
    return "the author's configurations have different pre_hooks"


def _only(hooks: set[Callable[..., Any] | None]) -> Callable[..., Any] | None:
    (hook,) = hooks
    return hook


def _literal(value: object) -> Literal:
    if value is None or isinstance(value, bool | str) or type(value) in (int, float):
        return value  # type: ignore[return-value]
    return stable_name(value)
