"""Rule `undeclared-import`: what a package imports, its users have or are told to install."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping

from packaging.requirements import InvalidRequirement, Requirement

from kernelhub.errors import Problem
from kernelhub.formats.build_toml import BuildFile

from .guards import unguarded
from .source import Module, PackageSource, Subject
from .syntax import python_range

# Modules that only some of the supported Pythons have (PEP 594, PEP 632, PEP 680 and others).
SINCE = {"tomllib": (3, 11), "annotationlib": (3, 14), "compression": (3, 14)}
UNTIL = {
    **dict.fromkeys(("asynchat", "asyncore", "distutils", "imp", "smtpd"), (3, 11)),
    **dict.fromkeys(
        ("aifc", "audioop", "cgi", "cgitb", "chunk", "crypt", "imghdr", "lib2to3", "mailcap",
         "msilib", "nis", "nntplib", "ossaudiodev", "pipes", "sndhdr", "spwd", "sunau",
         "telnetlib", "uu", "xdrlib"),
        (3, 12),
    ),
}  # fmt: skip
# What comes with a framework or a declared tool, as far as its metadata promises it.
COMES_WITH = {
    "torch": ("torch", "triton"),
    "jax": ("jax", "jaxlib", "numpy", "ml_dtypes"),
    "triton": ("triton",),
    "helion": ("helion",),
}
# Modules of distributions that are called otherwise.
MODULES = {
    "apache-tvm-ffi": ("tvm_ffi",),
    "nvidia-cutlass-dsl": ("cutlass", "cuda"),
    "pyyaml": ("yaml",),
    "tvm-ffi": ("tvm_ffi",),
}


def find(subject: Subject) -> Iterator[Problem]:
    """Every import of the packages that nothing declares."""
    pythons = python_range(subject.build_file)
    for package in subject.packages:
        allowed = _allowed(package, subject.build_file)
        for module in package.modules:
            yield from _faults(module, allowed, pythons)


def _allowed(package: PackageSource, build_file: BuildFile | None) -> frozenset[str]:
    allowed = {package.name, "kernelhub", "__future__", *COMES_WITH[package.framework]}
    if build_file is None:
        return frozenset(allowed)
    for tool in build_file.requires:
        allowed.update(COMES_WITH.get(tool, ()))
    declared = [*build_file.dependencies, *build_file.python_depends]
    for backend in build_file.backends:  # one source serves them all
        declared += build_file.python_depends_for(backend)
        if build_file.kernel_depends_for(backend):
            allowed.add("kernels")  # whose get_kernel_dep reaches them
    for text in declared:
        allowed.update(_modules_of(text))
    return frozenset(allowed)


def _modules_of(requirement: str) -> Iterator[str]:
    """Top-level modules that a PEP 508 requirement may be imported as."""
    try:
        name = Requirement(requirement).name.lower().replace("_", "-")
    except InvalidRequirement:  # reported by the build file's own check
        return
    yield from MODULES.get(name, ())
    yield name.replace("-", "_").replace(".", "_")
    yield from (module for module, owners in _installed().items() if name in owners)


def _installed() -> Mapping[str, tuple[str, ...]]:
    """Top-level modules of installed distributions, with the names of their distributions."""
    from importlib.metadata import packages_distributions

    return {
        module: tuple(owner.lower().replace("_", "-") for owner in owners)
        for module, owners in packages_distributions().items()
    }


def _faults(
    module: Module, allowed: frozenset[str], pythons: tuple[tuple[int, int], ...]
) -> Iterator[Problem]:
    if module.tree is None:
        return
    for node, name in _absolute(module.tree.body):
        top = name.split(".")[0]
        if top in allowed:
            continue
        if top in sys.stdlib_module_names or top in SINCE or top in UNTIL:
            lacking = _lacking(top, pythons)
            if lacking is None:
                continue
            message = f"imports {name}, which Python {lacking[0]}.{lacking[1]} does not have"
            hint = "guard it with try/except ImportError, or narrow python in [general.requires]"
        else:
            message = f"imports {name}, which build.toml does not declare"
            hint = (
                f'add "{top}", or the distribution that has it, to general.dependencies; or guard '
                "the import with try/except ImportError"
            )
        yield Problem(
            path=module.path,
            line=node.lineno,
            column=node.col_offset + 1,
            message=message,
            hint=hint,
            code="undeclared-import",
        )


def _lacking(module: str, pythons: tuple[tuple[int, int], ...]) -> tuple[int, int] | None:
    """A declared Python whose standard library lacks the module."""
    since, until = SINCE.get(module, (3, 0)), UNTIL.get(module, (99, 0))
    return next((version for version in pythons if not since <= version <= until), None)


def _absolute(body: Iterable[ast.stmt]) -> Iterator[tuple[ast.stmt, str]]:
    """Absolute imports that fail where the module is missing, each with the module's name."""
    for node in unguarded(body):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)
        elif node.level == 0 and node.module:
            yield node, node.module
