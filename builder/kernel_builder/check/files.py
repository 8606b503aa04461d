"""Rule `files`: nothing native, nothing oversized, no stray bytecode."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kernel_builder.project import printable
from kernelhub.errors import Problem

from .source import MAX_PARSED, PackageSource, Subject

MAX_SOURCE = MAX_PARSED
MAX_FILE = 1 << 30
LARGE_FILE = 32 << 20
_NATIVE_SUFFIXES = (".so", ".pyd", ".dll", ".dylib", ".a", ".o", ".lib", ".obj", ".exe")
_MAGIC = {
    b"\x7fELF": "ELF",
    b"MZ": "PE",
    b"\xfe\xed\xfa\xce": "Mach-O",
    b"\xfe\xed\xfa\xcf": "Mach-O",
    b"\xce\xfa\xed\xfe": "Mach-O",
    b"\xcf\xfa\xed\xfe": "Mach-O",
    b"\xca\xfe\xba\xbe": "Mach-O",
    b"!<arch>\n": "archive of object code",
}


def find(subject: Subject) -> Iterator[Problem]:
    """Look at every file of the packages, whatever its suffix."""
    for package in subject.packages:
        for name in package.files:
            yield from _faults(package, name)


def _faults(package: PackageSource, name: str) -> Iterator[Problem]:
    where = printable(f"{package.inside}/{name}")
    path = package.folder / name
    if "__pycache__" in name.split("/"):
        return  # never packed and never imported
    if name.endswith((".pyc", ".pyo")):
        yield Problem(
            path=where,
            message="compiled Python code without its source",
            hint="remove it",
            code="bytecode",
        )
        return
    size = path.stat().st_size
    if kind := _native(path):
        yield Problem(
            path=where,
            message=f"native code ({kind}); a noarch kernel is source that runs everywhere",
            hint="remove it; kernels with compiled parts need a builder for those",
            code="native-file",
        )
    limit = MAX_SOURCE if name.endswith((".py", ".pyi")) else MAX_FILE
    if size > limit:
        yield Problem(
            path=where,
            message=f"{size} bytes, more than the {limit} that such a file may have",
            hint="move data out of the source, or split it",
            code="oversized-file",
        )
    elif size > LARGE_FILE:
        yield Problem(
            path=where, message=f"{size >> 20} MiB that every user downloads", code="large-file"
        )


def _native(path: Path) -> str | None:
    """What kind of native code a file holds, by its first bytes, or else by its suffix."""
    with path.open("rb") as file:
        head = file.read(64)
    for magic, kind in _MAGIC.items():
        if head.startswith(magic) and (kind != "PE" or b"\0" in head):
            return kind
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if any(suffix in _NATIVE_SUFFIXES for suffix in suffixes[-1:]) or ".so" in suffixes:
        return f"suffix {path.suffix}"
    return None
