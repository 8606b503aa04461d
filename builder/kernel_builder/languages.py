"""Which kernel languages a package is written in, read off its import statements."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from kernelhub.errors import InputError

from .project import TUNING_FOLDER, Project
from .syntax import parse_source

LANGUAGES = ("triton", "gluon", "pallas", "helion", "torch")
_BY_MODULE = {
    "triton": "triton",
    "triton.experimental.gluon": "gluon",
    "jax.experimental.pallas": "pallas",
    "helion": "helion",
    "torch": "torch",
}


def detect_languages(sources: Iterable[str]) -> tuple[str, ...]:
    """Languages that the modules import, in the order of LANGUAGES.

    "torch" is named only where no kernel language is: it says that the kernel is plain torch.
    Text that is not Python of this interpreter's version counts as importing nothing; `check` is
    what reports it.
    """
    found = {name for text in sources for name in _languages_of(text)}
    kernels = tuple(name for name in LANGUAGES if name in found and name != "torch")
    return kernels or tuple(name for name in ("torch",) if name in found)


def package_languages(project: Project, framework: str) -> tuple[str, ...]:
    """Languages of the modules of a framework's package; its trees are data and say nothing.

    Raises:
        InputError: a module cannot be read.
    """
    folder = project.package(framework)
    names = [name for name in project.files(framework) if name.endswith(".py")]
    modules = [name for name in names if not name.startswith(f"{TUNING_FOLDER}/")]
    try:
        return detect_languages(
            (folder / n).read_bytes().decode("utf-8", "replace") for n in modules
        )
    except OSError as error:
        raise InputError(f"cannot read {error.filename}: {error.strerror}") from error


def _languages_of(text: str) -> Iterator[str]:
    try:
        module = parse_source(text)
    except SyntaxError:
        return
    for imported in _imports(module):
        parts = imported.split(".")
        prefixes = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
        known = next((name for name in prefixes if name in _BY_MODULE), None)
        if known is not None:
            yield _BY_MODULE[known]


def _imports(module: ast.Module) -> Iterator[str]:
    """Dotted names of every absolute import, `from a import b` as `a.b`."""
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
