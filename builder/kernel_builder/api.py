"""The public interface of a kernel package, read without importing it, and what breaks between two.

Public is what the package's `__all__` names (without one: names that do not start with an
underscore and are not imported). Sources are parsed, never executed, so the package may come from
anywhere.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from kernelhub.errors import InputError, MissingExtra

from .syntax import parse_source

if TYPE_CHECKING:
    import griffe


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicFunction:
    """A public callable: name, signature as written, and the first line of its docstring."""

    name: str
    signature: str
    summary: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Break:
    """One thing that code written for the old version can trip over."""

    name: str
    what: str

    def __str__(self) -> str:
        return f"{self.name}: {self.what}"


def public_functions(package: Path) -> tuple[PublicFunction, ...]:
    """Public functions and classes of the package in this folder, in the order of their names.

    Raises:
        InputError: a module does not parse.
        MissingExtra: griffe is not installed.
    """
    module = _load(package)
    found = []
    for name in sorted(_public_names(module)):
        member = _resolved(module, name)
        if member is None or not (member.is_function or member.is_class):
            continue
        signature = _signature(member)
        found.append(
            PublicFunction(name=name, signature=f"{name}{signature}", summary=_summary(member))
        )
    return tuple(found)


def public_names(package: Path) -> tuple[str, ...]:
    """Sorted names of everything public in the package in this folder."""
    return tuple(sorted(_public_names(_load(package))))


def find_breaks(old: Path, new: Path) -> tuple[Break, ...]:
    """Compare two folders of one package; empty if code for `old` keeps working with `new`.

    A break is a public name that is gone or of another kind, a parameter that is gone, moved, newly
    required or of another kind or default, a method or base class that is gone. Values of
    constants and annotations of results may change.

    Raises:
        InputError: a module does not parse.
        MissingExtra: griffe is not installed.
    """
    griffe = _griffe()
    harmless = {
        griffe.BreakageKind.ATTRIBUTE_CHANGED_VALUE,
        griffe.BreakageKind.ATTRIBUTE_CHANGED_TYPE,
        griffe.BreakageKind.RETURN_CHANGED_TYPE,
    }
    before, after = _load(old), _load(new)
    gone = _public_names(before) - _public_names(after)
    breaks = {Break(name=name, what="is no longer public") for name in gone}
    homes = _homes(before) | _homes(after)
    with _quiet():
        for breakage in griffe.find_breaking_changes(before, after):
            name = _public_path(breakage.obj.path, homes)
            if name is not None and name not in gone and breakage.kind not in harmless:
                breaks.add(Break(name=name, what=_explain(breakage)))
    breaks |= {
        Break(name=name, what=f"is {'now' if now else 'no longer'} async")
        for name, now in _asyncs(after).items()
        if now != _asyncs(before).get(name, now)
    }
    return tuple(sorted(breaks, key=str))


def _asyncs(module: griffe.Module) -> dict[str, bool]:
    """Public functions, and methods of public classes, to whether they are `async def`."""
    found = {}
    for name in _public_names(module):
        target: Any = _resolved(module, name)
        if target is None:
            continue
        members = {name: target}
        if target.is_class:
            members |= {f"{name}.{key}": item for key, item in target.members.items()}
        for key, member in members.items():
            if not member.is_alias and member.is_function:
                found[key] = "async" in member.labels
    return found


def _homes(module: griffe.Module) -> dict[str, str]:
    """Where each public object is defined, to the name that users know it by."""
    homes = {f"{module.path}.{name}": name for name in _public_names(module)}
    for name in _public_names(module):
        target = _resolved(module, name)
        if target is not None:
            homes[target.path] = name
    return homes


def _public_path(path: str, homes: Mapping[str, str]) -> str | None:
    """`pkg.mod.Layer.forward` as users know it (`Layer.forward`); None if they do not."""
    parts = path.split(".")
    for count in range(len(parts), 0, -1):
        home = ".".join(parts[:count])
        if home in homes:
            return ".".join([homes[home], *parts[count:]])
    return None


def _explain(breakage: griffe.Breakage) -> str:
    text = breakage.kind.value[0].lower() + breakage.kind.value[1:]
    parameter = getattr(breakage.old_value, "name", None) or getattr(
        breakage.new_value, "name", None
    )
    values = [_value(breakage.old_value), _value(breakage.new_value)]
    if parameter is not None:
        text = f"{text.replace('positional parameter', 'parameter')} ({parameter})"
    elif any(values):
        text = f"{text} ({' -> '.join(value for value in values if value)})"
    return text


def _value(value: object) -> str:
    return "" if value is None or value == "unset" else str(value)


def _griffe() -> ModuleType:
    try:
        import griffe
    except ImportError as error:
        raise MissingExtra("reading a package's public interface", "builder") from error
    return griffe


def _load(package: Path) -> griffe.Module:
    library = _griffe()
    name = package.name
    _check_syntax(package)
    try:
        with _quiet():
            module = library.load(
                name,
                search_paths=[package.parent],
                try_relative_path=False,
                allow_inspection=False,
            )
    except (library.LoadingError, UnicodeDecodeError, ImportError) as error:
        raise InputError(f"cannot read the public interface of {name}: {error}") from error
    loaded: griffe.Module = module
    return loaded


def _check_syntax(package: Path) -> None:
    """griffe leaves out modules that do not parse; an interface with a hole is none."""
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(package).as_posix()
        try:
            parse_source(path.read_bytes(), name)
        except SyntaxError as error:
            raise InputError(
                f"cannot read the public interface of {package.name}: {name}: {error}"
            ) from error
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror}") from error


def _public_names(module: griffe.Module) -> set[str]:
    if module.exports is not None:
        return {str(name) for name in module.exports}
    return {name for name, member in module.members.items() if member.is_public}


def _resolved(module: griffe.Module, name: str) -> griffe.Object | None:
    """The object that a name stands for; None if it comes from outside the package."""
    library = _griffe()
    member: Any = module.members.get(name)
    if isinstance(member, library.Alias):
        try:
            member = member.final_target
        except (library.AliasResolutionError, library.CyclicAliasError):
            return None
    target: griffe.Object | None = member
    return target


def _signature(member: griffe.Object) -> str:
    library = _griffe()
    function: Any = member
    if member.is_class:
        function = member.all_members.get("__init__", member)
    if not isinstance(function, library.Function):
        return "(...)"
    parameters = [p for p in function.parameters if not (member.is_class and p.name == "self")]
    returns = "" if member.is_class or function.returns is None else f" -> {function.returns}"
    return f"({', '.join(_parameters(parameters))}){returns}"


def _parameters(parameters: list[griffe.Parameter]) -> Iterator[str]:
    kinds = _griffe().ParameterKind
    star_seen = False
    for index, parameter in enumerate(parameters):
        if parameter.kind is kinds.keyword_only and not star_seen:
            star_seen = True
            yield "*"
        star_seen = star_seen or parameter.kind is kinds.var_positional
        prefix = {kinds.var_positional: "*", kinds.var_keyword: "**"}.get(parameter.kind, "")
        text = f"{prefix}{parameter.name}"
        if parameter.annotation is not None:
            text += f": {parameter.annotation}"
        if parameter.default is not None and not prefix:
            text += f" = {parameter.default}" if ":" in text else f"={parameter.default}"
        yield text
        following = parameters[index + 1].kind if index + 1 < len(parameters) else None
        if parameter.kind is kinds.positional_only and following is not kinds.positional_only:
            yield "/"


def _summary(member: griffe.Object) -> str:
    text = member.docstring.value.strip() if member.docstring else ""
    return text.splitlines()[0] if text else ""


@contextmanager
def _quiet() -> Iterator[None]:
    """griffe logs what it cannot resolve; whether that matters is ours to say."""
    log = logging.getLogger("griffe")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(level)
