"""Import a kernel from verified bytes, and from nothing else.

A kernel's package gets a name made of its content, so versions live side by side. Its `__path__`
holds names that only the hook here understands: Python's own finders see neither the folder, nor
stray files in it, nor byte code. Each source file is read once, compared with the manifest,
compiled, and handed to `linecache`, where `inspect` (and Triton through it) reads source text.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import linecache
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import CodeType, ModuleType

from .errors import LoadError
from .import_errors import explained
from .package import INIT, Package

if sys.version_info >= (3, 11):
    from importlib.resources.abc import TraversableResources
else:
    from importlib.abc import TraversableResources

logger = logging.getLogger(__name__)

_SCHEME = "<kernelhub>"


_packages: dict[str, Package] = {}
_finished: dict[str, ModuleType] = {}
_running: list[str] = []
# One lock for all kernels: two that load each other from two threads would wait for ever otherwise.
_lock = threading.RLock()


def load(package: Package, *, finish: Callable[[ModuleType], None]) -> ModuleType:
    """Import a package, once however many threads ask.

    Args:
        package: what to import.
        finish: called with the executed module before anybody else gets it; if it raises, the
            import has failed.

    Raises:
        DependencyError: it imports a package that is not installed.
        IntegrityError: a file changed after it was verified.
        LoadError: its code failed, or it loads itself while it is loaded.
    """
    with _lock:
        if (module := _finished.get(package.name)) is not None:
            return module
        if package.name in _running:
            circle = " -> ".join(_packages[name].title for name in (*_running, package.name))
            raise LoadError(
                f"kernels load each other in a circle: {circle}",
                hint="the author of one of them has to take its get_kernel call out",
            )
        _packages[package.name] = package
        _running.append(package.name)
        try:
            module = _execute(package)
            finish(module)
        except BaseException as error:
            _forget(package.name)
            if isinstance(error, Exception):
                raise explained(error, package) from error
            raise
        finally:
            _running.pop()
        _finished[package.name] = module
        return module


def _execute(package: Package) -> ModuleType:
    _install_hook()
    spec = _spec(package, package.name, INIT, folder="")
    module = importlib.util.module_from_spec(spec)
    sys.modules[package.name] = module
    assert spec.loader is not None  # noqa: S101 - _spec has just set it
    spec.loader.exec_module(module)
    return sys.modules[package.name]


def _forget(name: str) -> None:
    """Leave nothing of a failed import where a later one would find it."""
    for known in [m for m in sys.modules if m == name or m.startswith(f"{name}.")]:
        del sys.modules[known]
    for entry in [e for e in sys.path_importer_cache if e.startswith(f"{_SCHEME}/{name}/")]:
        del sys.path_importer_cache[entry]
    _packages.pop(name, None)


def _reset_after_fork() -> None:
    """A child has one thread: what other threads of its parent were loading is not there."""
    global _lock
    _lock = threading.RLock()
    for name in _running:
        _forget(name)
    _running.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)


def _spec(
    package: Package, fullname: str, path: str, *, folder: str | None
) -> importlib.machinery.ModuleSpec:
    """The spec of a module; `folder`, of a package, is what its `__path__` names."""
    origin = str(package.folder / path)
    loader = VerifiedLoader(package, fullname, path)
    spec = importlib.machinery.ModuleSpec(
        fullname, loader, origin=origin, is_package=folder is not None
    )
    spec.has_location = True
    if folder is not None:
        spec.submodule_search_locations = [_entry(package, folder)]
    return spec


def _entry(package: Package, folder: str) -> str:
    return f"{_SCHEME}/{package.name}/{folder}"


class VerifiedLoader(importlib.abc.InspectLoader):
    """Runs one module's verified bytes."""

    def __init__(self, package: Package, fullname: str, path: str) -> None:
        self._package = package
        self._fullname = fullname
        self._path = path

    def get_filename(self, fullname: str | None = None) -> str:
        return str(self._package.folder / self._path)

    def is_package(self, fullname: str) -> bool:
        return self._path.endswith(INIT)

    def get_source(self, fullname: str) -> str:
        return importlib.util.decode_source(self._package.read(self._path))

    def get_code(self, fullname: str) -> CodeType:
        data = self._package.read(self._path)
        filename = self.get_filename()
        text = importlib.util.decode_source(data)
        # An entry without a time is never compared with the file, so it stays the verified text.
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
        return compile(data, filename, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        exec(self.get_code(self._fullname), module.__dict__)  # noqa: S102 - what an importer is for

    def get_data(self, path: str) -> bytes:
        """Verified bytes of a file of the kernel, by its place on disk (`pkgutil.get_data`)."""
        try:
            inside = Path(path).relative_to(self._package.folder).as_posix()
        except ValueError as error:
            raise OSError(f"{path} is not part of {self._package.title}") from error
        return self._package.read(inside)

    def get_resource_reader(self, fullname: str) -> _Resources:
        return _Resources(self._package.folder / Path(self._path).parent)


class _Resources(TraversableResources):
    """`importlib.resources` of a kernel: its folder, verified before the import."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def files(self) -> Path:
        return self._folder


class _EntryFinder:
    """Finds the published modules of one folder of a kernel, for an entry of its `__path__`."""

    def __init__(self, package: Package, folder: str) -> None:
        self._package = package
        self._folder = folder

    def find_spec(
        self, fullname: str, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        inside = self._folder + fullname.rpartition(".")[2]
        if self._package.has(f"{inside}/{INIT}"):
            return _spec(self._package, fullname, f"{inside}/{INIT}", folder=f"{inside}/")
        if self._package.has(f"{inside}.py"):
            return _spec(self._package, fullname, f"{inside}.py", folder=None)
        if self._package.has_folder(inside):
            spec = importlib.machinery.ModuleSpec(fullname, None, is_package=True)
            spec.submodule_search_locations = [_entry(self._package, f"{inside}/")]
            return spec
        return None

    def iter_modules(self, prefix: str = "") -> Iterator[tuple[str, bool]]:
        """Names below this folder, for `pkgutil`."""
        start = self._package.inside + self._folder
        below = sorted(p.removeprefix(start) for p in self._package.manifest if p.startswith(start))
        for path in below:
            name, _, rest = path.partition("/")
            if rest == INIT:
                yield prefix + name, True
            elif not rest and name.endswith(".py") and name != INIT:
                yield prefix + name.removesuffix(".py"), False


def _hook(entry: str) -> _EntryFinder:
    """The path hook: knows entries of packages that are being or have been imported."""
    scheme, _, rest = entry.partition("/")
    name, _, folder = rest.partition("/")
    package = _packages.get(name) if scheme == _SCHEME else None
    if package is None:
        raise ImportError(f"{entry!r} is no folder of a kernel")
    return _EntryFinder(package, folder)


def _install_hook() -> None:
    hooks: Sequence[object] = sys.path_hooks
    if _hook not in hooks:
        sys.path_hooks.append(_hook)
