"""Texts inside build.toml, metadata.json and locks: what is wrong with one, if anything is.

Each `*_fault` function is pure and never raises; `scalars` makes pydantic types of them. Nothing
here needs pydantic, so that a load does not either.
"""

from __future__ import annotations

import re

from packaging.requirements import InvalidRequirement
from packaging.requirements import Requirement as PythonRequirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet

from .names import KERNEL_NAME

_GIT_SCHEMES = ("https", "http", "git", "ssh", "git+ssh", "git+https", "git+http")
_GIT_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):///?(?P<host>[^/?#\s]+)(?:[/?#].*)?")
_PORT = re.compile(r".*[^:]:(\d+)")
_SCP_URL = re.compile(r"[^@/:]*@[^\s@/:\[\]]+:[^/].*")
_VERSION_PART = re.compile(r"\+?[0-9]+", re.ASCII)
COMMIT = re.compile(r"[0-9a-fA-F]{40}(?:[0-9a-fA-F]{24})?", re.ASCII)
_MAX_TEXT = 2000  # longer specifiers and requirements are no work of people


def git_url_fault(url: str) -> str | None:
    """Why HF's tools would not take this for the URL of a git repository, or None."""
    url = url.strip()
    if _SCP_URL.fullmatch(url):
        return None
    match = _GIT_URL.fullmatch(url)
    if match is None or match["scheme"].lower() not in _GIT_SCHEMES:
        return f"expected a git URL ({', '.join(_GIT_SCHEMES)}) or user@host:path, found {url!r}"
    if (port := _PORT.fullmatch(match["host"])) and int(port[1][:6]) > 65535:
        return f"{port[1][:6]} is no port, in {url!r}"
    return None


def dotted_fault(text: str, parts: int) -> str | None:
    """Why this is no version of exactly so many integers, or None. Read as HF's parser reads."""
    numbers = [number.strip() for number in text.split(".")]
    if len(numbers) != parts or not all(
        _VERSION_PART.fullmatch(number) and int(number[:25]) < 2**64 for number in numbers
    ):
        return f"expected {'.'.join('XYZ'[:parts])}, {parts} integers, found {text[:40]!r}"
    return None


def unicode_fault(text: str) -> str | None:
    lone = any("\ud800" <= c <= "\udfff" for c in text)
    return "expected a string of valid Unicode" if lone else None


def two_part_fault(text: str) -> str | None:
    return dotted_fault(text, 2)


def minver_fault(text: str) -> str | None:
    return dotted_fault(text, 3)


def specifier_fault(text: str) -> str | None:
    """Why this is no set of PEP 440 version specifiers, or None."""
    try:
        empty = len(text) > _MAX_TEXT or not SpecifierSet(text)
    except InvalidSpecifier:
        empty = True
    return f"expected version specifiers (PEP 440), found {text[:60]!r}" if empty else None


def dependency_fault(text: str) -> str | None:
    """Why this is no Python dependency (PEP 508), or None."""
    if len(text) > _MAX_TEXT:
        return "expected a Python dependency (PEP 508), found a very long text"
    try:
        PythonRequirement(text)
    except InvalidRequirement as error:
        return f"expected a Python dependency (PEP 508): {str(error).splitlines()[0]}"
    return None


def received_name_fault(name: str) -> str | None:
    return None if KERNEL_NAME.fullmatch(name) else f"{name[:60]!r} is no kernel name"
