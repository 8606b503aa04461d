"""Values inside build.toml and metadata.json, as pydantic types that say what they expect.

Each type checks by a pure function `str -> fault or None`; `models.problems` turns what these
raise into located problems.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated

from packaging.requirements import InvalidRequirement
from packaging.requirements import Requirement as PythonRequirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from pydantic import AfterValidator, Field, StrictInt, StrictStr
from pydantic_core import PydanticCustomError

from .names import KERNEL_NAME, name_fault, path_fault, repo_id_fault, revision_fault

_GIT_SCHEMES = ("https", "http", "git", "ssh", "git+ssh", "git+https", "git+http")
_GIT_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):///?(?P<host>[^/?#\s]+)(?:[/?#].*)?")
_PORT = re.compile(r".*[^:]:(\d+)")
_SCP_URL = re.compile(r"[^@/:]*@[^\s@/:\[\]]+:[^/].*")
_VERSION_PART = re.compile(r"\+?[0-9]+", re.ASCII)
_COMMIT = re.compile(r"[0-9a-fA-F]{40}(?:[0-9a-fA-F]{24})?", re.ASCII)
_MAX_TEXT = 2000  # longer specifiers and requirements are no work of people


def custom_error(message: str, hint: str | None = None) -> PydanticCustomError:
    """An error of a validator, with a remedy."""
    return PydanticCustomError(
        "invalid_value", "{message}", {"message": message, "hint": hint or ""}
    )


def _checked(fault_of: Callable[[str], str | None], hint: str | None = None) -> AfterValidator:
    def check(value: str) -> str:
        if fault := fault_of(value):
            raise custom_error(fault, hint)
        return value

    return AfterValidator(check)


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


def _unicode_fault(text: str) -> str | None:
    lone = any("\ud800" <= c <= "\udfff" for c in text)
    return "expected a string of valid Unicode" if lone else None


def _two(text: str) -> str | None:
    return dotted_fault(text, 2)


def _three(text: str) -> str | None:
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


def _received_name_fault(name: str) -> str | None:
    return None if KERNEL_NAME.fullmatch(name) else f"{name[:60]!r} is no kernel name"


def _commit(value: str) -> str:
    if not _COMMIT.fullmatch(value):
        raise custom_error("expected a git commit of 40 or 64 hexadecimal digits")
    return value.lower()


_NAME = {"pattern": f"^{KERNEL_NAME.pattern}$"}

Text = Annotated[StrictStr, _checked(_unicode_fault)]
AuthoredName = Annotated[
    Text, _checked(name_fault, 'for example "flash-attn"'), Field(json_schema_extra=_NAME)
]
ReceivedName = Annotated[Text, _checked(_received_name_fault), Field(json_schema_extra=_NAME)]
RepoId = Annotated[Text, _checked(repo_id_fault, 'for example "org/flash-attn"')]
Revision = Annotated[Text, _checked(revision_fault)]
GitUrl = Annotated[Text, _checked(git_url_fault, 'for example "https://example.org/org/repo.git"')]
RelativePath = Annotated[Text, _checked(path_fault)]
MajorMinor = Annotated[Text, _checked(_two, 'for example "12.8", in quotes')]
MajorMinorPatch = Annotated[Text, _checked(_three)]
Specifier = Annotated[Text, _checked(specifier_fault, 'for example ">=2.6" or ">=3.6,<4"')]
Dependency = Annotated[Text, _checked(dependency_fault, 'for example "einops>=0.8"')]
Commit = Annotated[Text, AfterValidator(_commit)]
AuthoredVersion = Annotated[StrictInt, Field(ge=0, le=2**63 - 1)]
ReceivedVersion = Annotated[StrictInt, Field(ge=0, le=2**64 - 1)]
