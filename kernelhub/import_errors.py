"""What the failure of a kernel's own code means, as one of our errors."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from .errors import DependencyError, KernelHubError, LoadError


class Imported(Protocol):
    """What is known of the kernel whose import failed."""

    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def variant(self) -> Path: ...
    @property
    def requirements(self) -> Mapping[str, str]: ...


def explained(error: Exception, kernel: Imported) -> KernelHubError:
    """The error to raise for `error`, which the code of `kernel` raised while it was imported."""
    if isinstance(error, KernelHubError):
        return error
    where = _last_line(error, kernel.variant)
    if isinstance(error, ModuleNotFoundError) and error.name is not None:
        missing = error.name.partition(".")[0]
        if missing != kernel.name:
            return _missing(kernel, missing, where)
        inside = error.name.removeprefix(f"{kernel.name}.")
        return LoadError(
            f"{kernel.title}: {where}imports its own module {inside!r}, which was not published",
            hint="the kernel's author has to publish it again, with that file",
        )
    return LoadError(
        f"{kernel.title}: {where}{type(error).__name__}: {error}",
        hint="the traceback of its cause shows the kernel's code; tell its author, or pin another"
        " version",
    )


def _missing(kernel: Imported, module: str, where: str) -> DependencyError:
    for distribution, requirement in kernel.requirements.items():
        if distribution.replace("-", "_").lower() == module.lower():
            return DependencyError(
                f"{kernel.title}: {where}needs {requirement}, which is not installed",
                hint=f'pip install "{requirement}"',
            )
    return DependencyError(
        f"{kernel.title}: {where}imports {module!r}, which is not installed, and which the kernel"
        " does not declare as a dependency",
        hint=f"pip install {module} (if the package is called so), and tell the kernel's author to"
        " declare it in build.toml",
    )


def _last_line(error: Exception, folder: Path) -> str:
    """The innermost line of the kernel's own code, as "layers.py, line 3: "."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if Path(frame.filename).is_relative_to(folder):
            inside = Path(frame.filename).relative_to(folder).as_posix()
            return f"{inside}, line {frame.lineno}: "
    if isinstance(error, SyntaxError) and error.filename:
        return f"{Path(error.filename).name}, line {error.lineno}: "
    return ""
