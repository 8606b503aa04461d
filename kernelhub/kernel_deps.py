"""Kernels that a kernel asks for while it is imported.

A kernel built for HF's client writes `from kernels import get_kernel_dep`; one made here may write
`from kernelhub import get_kernel_dep`. Both give the module of a kernel that the metadata declares.
Where HF's client is not installed, a module of its name that holds only this function stands in
while such a kernel is imported.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from types import ModuleType

from .errors import LoadError

_HF = "kernels"
_deps: ContextVar[Mapping[str, ModuleType] | None] = ContextVar("kernelhub_deps", default=None)


def get_kernel_dep(repo_id: str) -> ModuleType:
    """The module of a kernel that the kernel being imported declares in `kernel-depends`.

    Args:
        repo_id: "org/name", as declared.

    Raises:
        LoadError: no kernel is being imported, or it does not declare that one.
    """
    deps = _deps.get()
    if deps is None:
        raise LoadError(
            f"{repo_id}: get_kernel_dep works only while a kernel is being imported",
            hint="call it at the top level of a kernel's module; elsewhere call get_kernel",
        )
    if repo_id not in deps:
        known = ", ".join(sorted(deps)) or "none"
        raise LoadError(
            f"the kernel does not declare {repo_id!r} in kernel-depends (declared: {known})",
            hint="its author has to add it to general.kernel-depends in build.toml",
        )
    return deps[repo_id]


@contextlib.contextmanager
def offered(deps: Mapping[str, ModuleType]) -> Iterator[None]:
    """Make `deps` what `get_kernel_dep` gives in the block, HF's function of that name included."""
    token = _deps.set(deps)
    try:
        with _hf_offers(deps) if deps else contextlib.nullcontext():
            yield
    finally:
        _deps.reset(token)


@contextlib.contextmanager
def _hf_offers(deps: Mapping[str, ModuleType]) -> Iterator[None]:
    if _HF in sys.modules or importlib.util.find_spec(_HF) is not None:
        try:
            from kernels.deps import use_kernel_deps  # type: ignore[import-untyped,unused-ignore]
        except ImportError:  # a release of HF's client without dependencies between kernels
            yield
            return
        with use_kernel_deps(dict(deps)):
            yield
        return
    stand_in = ModuleType(_HF, "Stands in for HF's client while a kernel is imported.")
    stand_in.__dict__["get_kernel_dep"] = get_kernel_dep
    sys.modules[_HF] = stand_in
    try:
        yield
    finally:
        if sys.modules.get(_HF) is stand_in:
            del sys.modules[_HF]
