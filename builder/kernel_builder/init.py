"""Start a kernel project: one that builds, checks and passes its tests as it is written."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from kernelhub.errors import InputError, StoreError
from kernelhub.formats import json_schema
from kernelhub.formats.build_toml import SCHEMA_HINT
from kernelhub.formats.names import python_name

_COMMON = {
    "build.toml": "build.toml",
    "gitignore": ".gitignore",
    "README.md": "README.md",
    "workflow.yml": ".github/workflows/kernel.yml",
    "conftest.py": "tests/conftest.py",
}
_SOURCES = ("__init__.py", "gate.py")
_SUMMARY = "silu(gate) * up, the gate of a gated MLP."


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    """What differs between the templates of two languages."""

    table: str
    sources: str
    backends: tuple[str, ...]
    requires: Mapping[str, str]
    extra: str


LANGUAGES: Mapping[str, Language] = {
    "triton": Language(
        table="torch-noarch",
        sources="torch-ext",
        backends=("cuda", "rocm"),
        requires={"torch": ">=2.6", "triton": ">=3.2"},
        extra="triton",
    ),
    "pallas": Language(
        table="jax-noarch",
        sources="jax-ext",
        backends=("cpu", "tpu"),
        requires={"jax": ">=0.8"},
        extra="jax",
    ),
    "torch": Language(
        table="torch-noarch",
        sources="torch-ext",
        backends=("cpu", "cuda", "rocm", "xpu"),
        requires={"torch": ">=2.6"},
        extra="triton",
    ),
}


def start_project(name: str, language: str, path: Path | None = None) -> Path:
    """Write a new project and return its folder, which appears whole or not at all.

    Args:
        name: of the kernel, such as "flash-attn".
        language: a key of LANGUAGES.
        path: the folder to make, `./<name>` if None; may exist if it is empty.

    Raises:
        FormatError: `name` cannot be a kernel's name.
        InputError: the language is unknown or the folder is not empty.
        StoreError: it cannot be written.
    """
    if language not in LANGUAGES:
        raise InputError(f"no template for {language!r}", hint=f"one of {', '.join(LANGUAGES)}")
    package = python_name(name)
    target = (path or Path(name)).absolute()
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise InputError(f"{target} is not a folder")
    if target.is_dir() and any(target.iterdir()):
        raise InputError(f"{target} is not empty", hint="name another place with --path")
    try:
        _write(target, _files(name, package, language))
    except OSError as error:
        raise StoreError(f"cannot write {target}: {error.strerror or error}") from error
    return target


def _files(name: str, package: str, language: str) -> dict[str, str]:
    facts = LANGUAGES[language]
    sources = f"{facts.sources}/{package}"
    values = {
        "NAME": name,
        "SUMMARY": _SUMMARY,
        "SCHEMA": SCHEMA_HINT,
        "BACKENDS": ", ".join(f'"{backend}"' for backend in facts.backends),
        "REQUIRES": _requires(facts.requires),
        "SOURCES": sources,
        "TABLE": facts.table,
        "EXTRA": facts.extra,
    }
    files = {place: _template("common", source) for source, place in _COMMON.items()}
    files |= {f"{sources}/{source}": _template(language, source) for source in _SOURCES}
    files["tests/test_kernel.py"] = _template(language, "test_kernel.py")
    filled = {place: _filled(text, values) for place, text in files.items()}
    return filled | {_schema_place(): json_schema.render("build.toml")}


def _schema_place() -> str:
    """Where build.toml's first line says that its schema is."""
    return SCHEMA_HINT.removeprefix("#:schema ./")


def _requires(requires: Mapping[str, str]) -> str:
    lines = [f'{tool} = "{specifier}"' for tool, specifier in requires.items()]
    return "\n".join(["", "[general.requires]", *lines, ""])


def _template(folder: str, name: str) -> str:
    root = resources.files("kernel_builder") / "templates"
    return (root / folder / f"{name}.tmpl").read_text(encoding="utf-8")


def _filled(text: str, values: Mapping[str, str]) -> str:
    for key, value in values.items():
        text = text.replace(f"@{key}@", value)
    return text


def _write(target: Path, files: Mapping[str, str]) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        for name, text in files.items():
            place = staging / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8", newline="\n")
        staging.chmod(0o755)
        if target.is_dir():
            target.rmdir()
        staging.rename(target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
