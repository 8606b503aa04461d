"""Values inside build.toml and metadata.json, as pydantic types that say what they expect.

Each type checks by a pure function `str -> fault or None` (`names`, `text_faults`);
`models.problem` turns what these raise into located problems.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from pydantic import AfterValidator, Field, StrictInt, StrictStr
from pydantic_core import PydanticCustomError

from .names import KERNEL_NAME, name_fault, path_fault, repo_id_fault, revision_fault
from .text_faults import (
    COMMIT,
    dependency_fault,
    git_url_fault,
    minver_fault,
    received_name_fault,
    specifier_fault,
    two_part_fault,
    unicode_fault,
)


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


def _commit(value: str) -> str:
    if not COMMIT.fullmatch(value):
        raise custom_error("expected a git commit of 40 or 64 hexadecimal digits")
    return value.lower()


_NAME = {"pattern": f"^{KERNEL_NAME.pattern}$"}

Text = Annotated[StrictStr, _checked(unicode_fault)]
AuthoredName = Annotated[
    Text, _checked(name_fault, 'for example "flash-attn"'), Field(json_schema_extra=_NAME)
]
ReceivedName = Annotated[Text, _checked(received_name_fault), Field(json_schema_extra=_NAME)]
RepoId = Annotated[Text, _checked(repo_id_fault, 'for example "org/flash-attn"')]
Revision = Annotated[Text, _checked(revision_fault)]
GitUrl = Annotated[Text, _checked(git_url_fault, 'for example "https://example.org/org/repo.git"')]
RelativePath = Annotated[Text, _checked(path_fault)]
MajorMinor = Annotated[Text, _checked(two_part_fault, 'for example "12.8", in quotes')]
MajorMinorPatch = Annotated[Text, _checked(minver_fault)]
Specifier = Annotated[Text, _checked(specifier_fault, 'for example ">=2.6" or ">=3.6,<4"')]
Dependency = Annotated[Text, _checked(dependency_fault, 'for example "einops>=0.8"')]
Commit = Annotated[Text, AfterValidator(_commit)]
AuthoredVersion = Annotated[StrictInt, Field(ge=0, le=2**63 - 1)]
ReceivedVersion = Annotated[StrictInt, Field(ge=0, le=2**64 - 1)]
