"""A kernel project on disk: `build.toml` and one package of Python files per framework.

`Project.open` looks at every name once and refuses what could not be packed the same way on every
machine, with all faults at once. Nothing of the project is imported or executed.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kernelhub.errors import FormatError, InputError, Problem
from kernelhub.formats.build_toml import BuildFile, parse_build_toml
from kernelhub.formats.names import path_fault

from .syntax import public_definitions, source_problems

BUILD_FILE = "build.toml"
OPS_MODULE = "_ops.py"
OPS_NAMES = frozenset({"ops", "add_op_namespace_prefix"})  # all that a generated one offers
TUNING_FOLDER = "tuning"
_TUNING_SUFFIXES = (".py", ".json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """The files of one framework's package.

    Attributes:
        framework: "torch" or "jax".
        folder: where they lie, `<root>/<framework>-ext/<python name>`.
        files: what is packed, relative to `folder`, with `/`, sorted by the bytes of the name.
        left_out: files that are there and not packed, because of their suffix or a leading dot.
    """

    framework: str
    folder: Path
    files: tuple[str, ...]
    left_out: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A kernel project whose layout is sound. `root` is its folder, `packages` by framework."""

    root: Path
    build_file: BuildFile
    packages: Mapping[str, Package]

    @classmethod
    def open(cls, path: Path | str) -> Project:
        """Read a project: a folder that holds `build.toml`, or the path of that file.

        Raises:
            InputError: there is no such folder or no `build.toml` in it.
            FormatError: `build.toml` is malformed, or files of the packages cannot be packed;
                carries every fault.
        """
        root = _find_root(Path(path))
        build_file = parse_build_toml(_read(root / BUILD_FILE), path=BUILD_FILE)
        problems: list[Problem] = []
        packages = {
            framework: _scan_package(root, framework, build_file, problems)
            for framework in sorted(build_file.frameworks)
        }
        if problems:
            raise FormatError(f"project {build_file.name}", problems)
        return cls(root=root, build_file=build_file, packages=packages)

    def package(self, framework: str) -> Path:
        """The folder of a framework's package."""
        return self.packages[framework].folder

    def files(self, framework: str) -> tuple[str, ...]:
        """What is packed for a framework: sorted names relative to `package(framework)`."""
        return self.packages[framework].files

    def source_problems(self) -> list[Problem]:
        """Every packed module that does not parse, or whose text cannot be decoded."""
        found = []
        for package in self.packages.values():
            inside = package.folder.relative_to(self.root).as_posix()
            for name in package.files:
                if name.endswith(".py"):
                    found += source_problems(package.folder / name, f"{inside}/{name}")
        return found


def printable(name: str) -> str:
    """A file name as text that any stream can print; undecodable bytes become escapes."""
    return name.encode("utf-8", "backslashreplace").decode("utf-8")


def _find_root(path: Path) -> Path:
    root = path.parent if path.name == BUILD_FILE else path
    if not root.is_dir():
        raise InputError(f"there is no folder {printable(str(root))}")
    if not (root / BUILD_FILE).is_file():
        raise InputError(
            f"{printable(str(root))} holds no {BUILD_FILE}",
            hint="name the project's folder, or start one with `kernel-builder init NAME`",
        )
    return root.resolve()


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error


def _scan_package(
    root: Path, framework: str, build_file: BuildFile, problems: list[Problem]
) -> Package:
    extension = f"{framework}-ext"
    inside = f"{extension}/{build_file.python_name}"
    folder = root / extension / build_file.python_name
    empty = Package(framework=framework, folder=folder, files=(), left_out=())
    for part, name in ((folder.parent, extension), (folder, inside)):
        if part.is_symlink():
            problems.append(_symlink(name))
            return empty
    if not folder.is_dir():
        problems.append(
            Problem(
                path=inside,
                message="the package's folder is missing",
                hint=f"{BUILD_FILE} declares {framework}; its Python files live in {inside}/",
                code="missing-package",
            )
        )
        return empty
    suffixes = tuple(f".{ext.lstrip('.')}" for ext in build_file.frameworks[framework].pyext)
    packed: list[str] = []
    left_out: list[str] = []
    for name in _walk(folder, inside, problems):
        if name == OPS_MODULE and framework == "torch":
            problems.extend(_own_ops_problems(folder / name, f"{inside}/{name}"))
            continue  # generated: the build writes its own
        (packed if _is_packed(name, suffixes) else left_out).append(name)
    problems.extend(_name_problems(inside, packed))
    problems.extend(_layout_problems(inside, framework, build_file.python_name, packed))
    return Package(
        framework=framework,
        folder=folder,
        files=tuple(sorted(packed, key=os.fsencode)),
        left_out=tuple(sorted(left_out, key=os.fsencode)),
    )


def _walk(folder: Path, inside: str, problems: list[Problem], prefix: str = "") -> Iterator[str]:
    """Names of regular files below `folder`; everything that is neither is a problem."""
    try:
        with os.scandir(folder) as entries:
            found = sorted(entries, key=lambda entry: os.fsencode(entry.name))
    except OSError as error:
        problems.append(
            Problem(
                path=printable(f"{inside}/{prefix}"),
                message=f"cannot be listed: {error.strerror}",
                code="unreadable",
            )
        )
        return
    for entry in found:
        name = f"{prefix}{entry.name}"
        if entry.name == "__pycache__" or entry.name.endswith(".pyc"):
            continue
        if entry.is_symlink():
            problems.append(_symlink(f"{inside}/{name}"))
        elif entry.is_dir():
            yield from _walk(Path(entry.path), inside, problems, f"{name}/")
        elif entry.is_file():
            yield name
        else:
            problems.append(
                Problem(
                    path=printable(f"{inside}/{name}"),
                    message="neither a regular file nor a folder",
                    hint="remove it",
                    code="special-file",
                )
            )


def _is_packed(name: str, suffixes: tuple[str, ...]) -> bool:
    parts = name.split("/")
    if any(part.startswith(".") for part in parts):
        return False
    return name.endswith(suffixes) or (
        parts[0] == TUNING_FOLDER and name.endswith(_TUNING_SUFFIXES)
    )


def _own_ops_problems(file: Path, name: str) -> Iterator[Problem]:
    """An `_ops.py` that defines more than a generated one would lose it to the build's."""
    try:
        lost = sorted(public_definitions(file.read_bytes()) - OPS_NAMES)
    except SyntaxError:
        lost = ["what does not parse"]
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}") from error
    if lost:
        yield Problem(
            path=name,
            message=f"would be replaced by the generated module, and lost: {', '.join(lost)}",
            hint=f"move them to a module of another name; {OPS_MODULE} belongs to the build",
            code="reserved-name",
        )


def _symlink(name: str) -> Problem:
    return Problem(
        path=printable(name),
        message="a symbolic link cannot be packed",
        hint="put the file itself there",
        code="symlink",
    )


def _name_problems(inside: str, names: list[str]) -> Iterator[Problem]:
    seen: dict[str, str] = {}
    for name in names:
        if fault := path_fault(name):
            yield Problem(
                path=printable(f"{inside}/{name}"),
                message=printable(fault),
                hint="rename it: published files must be usable on every system",
                code="bad-name",
            )
            continue
        for folded, spelled in _foldings(name):
            other = seen.setdefault(folded, spelled)
            if other != spelled:
                yield Problem(
                    path=f"{inside}/{spelled}",
                    message=f"collides with {other} where file names ignore case",
                    hint="rename one of them",
                    code="name-collision",
                )
                break


def _foldings(name: str) -> Iterator[tuple[str, str]]:
    """Each folder of a name and the name itself, with the form that case-blind systems compare."""
    parts = name.split("/")
    for count in range(1, len(parts) + 1):
        spelled = "/".join(parts[:count])
        yield unicodedata.normalize("NFC", spelled).casefold(), spelled


def _layout_problems(
    inside: str, framework: str, python_name: str, names: list[str]
) -> Iterator[Problem]:
    if "__init__.py" not in names:
        yield Problem(
            path=f"{inside}/__init__.py",
            message="missing",
            hint="a kernel is a package; its __all__ names the public functions",
            code="missing-init",
        )
    if any(name.split("/")[0] in (python_name, f"{python_name}.py") for name in names):
        yield Problem(
            path=f"{inside}/{python_name}",
            message="bears the package's own name",
            hint="other loaders keep that name for themselves: rename it",
            code="package-in-package",
        )
    if framework == "jax" and OPS_MODULE in names:
        yield Problem(
            path=f"{inside}/{OPS_MODULE}",
            message=f"{OPS_MODULE} is the generated module of torch packages",
            hint="rename it",
            code="reserved-name",
        )
