"""All tunables of a loaded package, of every language that the package uses."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from types import ModuleType

from kernelhub.formats.tree import DeviceFacts

from . import tracing
from .adapter import Tunable
from .tunable import FunctionTunable


def find_tunables(package: ModuleType, device: DeviceFacts | None = None) -> Mapping[str, Tunable]:
    """The tunables that the package's imported modules define, by dotted name below it.

    Kernels made inside functions or kept in containers are not found. From now on each of them
    reports to `capture` and obeys `forced`; see `adapter.Adapter.find`.

    Args:
        package: an imported package; its submodules count as far as they are imported.
        device: facts to use where the framework cannot tell them (no torch, no GPU).
    """
    found: dict[str, Tunable] = dict(FunctionAdapter(device).find(package))
    if "triton" in sys.modules:
        from .triton import TritonAdapter

        found |= TritonAdapter(device).find(package)
    return dict(sorted(found.items()))


class FunctionAdapter:
    """Finds functions decorated with `@kernelhub.tunable`. See `adapter.Adapter`."""

    def __init__(self, fallback_device: DeviceFacts | None = None) -> None:
        self.fallback_device = fallback_device

    def find(self, package: ModuleType) -> Mapping[str, FunctionTunable]:
        tracing.look_for_torch()
        found: dict[str, FunctionTunable] = {}
        for module in modules_of(package):
            for value in list(vars(module).values()):
                if isinstance(value, FunctionTunable) and value.__module__ == module.__name__:
                    below = module.__name__.removeprefix(package.__name__).lstrip(".")
                    value.name = ".".join(filter(None, (below, value.function.__qualname__)))
                    value.fallback_device = self.fallback_device or value.fallback_device
                    found[value.name] = value
        return dict(sorted(found.items()))


def modules_of(package: ModuleType) -> list[ModuleType]:
    """The package and those of its submodules that are imported, by name."""
    return [package, *_submodules(package.__name__ + ".")]


def _submodules(prefix: str) -> Iterator[ModuleType]:
    for name, module in sorted(sys.modules.items()):
        if name.startswith(prefix) and isinstance(module, ModuleType):
            yield module
