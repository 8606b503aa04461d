"""What compilers see of a bound kernel: its tree, as a pruning of configurations.

torch.compile does not call an autotuned kernel, it reads it: its configurations, and the author's
pruning, which it traces like the rest of the program. So a tree is shown to it as a pruning that
leaves the one configuration that the tree names, with guards on exactly what the tree looks at.
The author's own pruning still rules out what it does not allow. Where no tree is for this device,
the author's attributes are seen unchanged.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernelhub.errors import DispatchError
from kernelhub.formats.tree import Config

from . import features
from .fast_code import function
from .launch import dtype_name

if TYPE_CHECKING:
    from .dispatcher import BoundTree
    from .triton import TritonTunable


_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """The attributes of an autotuner with one tree, as compilers see them.

    Attributes:
        configs: the author's configurations, then those of the tree that the author does not list.
        early_config_prune: `(configs, named_args, **kwargs) -> [one configuration]`.
    """

    configs: list[Any]
    early_config_prune: Callable[..., list[Any]]


def shown(tunable: TritonTunable, bound: BoundTree) -> Shown:
    """Make them. The function is plain Python that torch.compile can trace."""
    configs = list(tunable.author.configs)
    places: list[int] = []
    for flat in bound.tree.configs:
        config = _made(tunable, flat)
        if config is not None and config not in configs:
            configs.append(config)
        places.append(-1 if config is None else configs.index(config))
    values = ", ".join(
        _value_text(feature, tunable.signature.parameters) for feature in bound.compiled.features
    )
    namespace = {
        "choose": bound.compiled.choose,
        "places": tuple(places),
        "defaults": tunable.defaults,
        "dtypes": _dtype_names(),
        "author": tunable.author.early_config_prune,
    }
    text = _FILTERED if tunable.author.early_config_prune else _PLAIN
    return Shown(
        configs=configs, early_config_prune=function(text.format(values), "prune", namespace)
    )


def can_be_shown(tunable: TritonTunable) -> bool:
    """Whether torch's compiler, if it is loaded, can read a pruning of this kernel.

    Where heuristics stand below the autotuner, torch up to 2.11 loses track of where the kernel
    came from, which it needs for the guards of a pruning, and fails. Without a tree and without a
    pruning of the author's it compiles such a kernel; so that is what it sees.
    """
    module = sys.modules.get("torch._higher_order_ops.triton_kernel_wrap")
    reader = getattr(module, "TritonHOPifier", None)
    if tunable.autotuner.fn is tunable.jit or reader is None:
        return True
    can = hasattr(reader, "get_kernel_source")
    if not can and tunable.name not in _said:
        _said.add(tunable.name)
        _log.warning(
            "%s: this torch cannot compile it with its tree, since it has heuristics; compiled "
            "programs choose among all its configurations",
            tunable.name,
        )
    return can


_said: set[str] = set()

_PLAIN = """
def prune(configs, named_args, **kwargs):
    arguments = {{**defaults, **named_args, **kwargs}}
    for index in choose({}):
        if places[index] >= 0:
            return [configs[places[index]]]
    return configs[:1]
"""

_FILTERED = """
def prune(configs, named_args, **kwargs):
    arguments = {{**defaults, **named_args, **kwargs}}
    allowed = author(configs, named_args, **kwargs)
    for index in choose({}):
        for config in allowed:
            if places[index] >= 0 and config is configs[places[index]]:
                return [config]
    return allowed[:1]
"""


def _made(tunable: TritonTunable, flat: Config) -> Any:
    try:
        return tunable.triton_config(flat)
    except DispatchError:  # a tree of another version of this kernel
        return None


def _value_text(feature: str, parameters: Mapping[str, Any]) -> str:
    name, what = features.source(feature, parameters)
    argument = f"arguments[{name!r}]"
    if what == "dtype":
        return f"dtypes[{argument}.dtype]"
    return f"{argument}.shape[{what[3:]}]" if what.startswith("dim") else argument


def _dtype_names() -> dict[Any, str]:
    torch = sys.modules.get("torch")
    if torch is None:
        return {}
    found = (value for value in vars(torch).values() if isinstance(value, torch.dtype))
    return {dtype: dtype_name(dtype) for dtype in found}
