"""Bases of the file models, and the way from pydantic's errors to located problems.

Authored files reject unknown keys; received files ignore them, so that a newer publisher may add
keys. Attributes are snake_case, keys in files kebab-case.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from kernelhub.errors import Problem

Model = TypeVar("Model", bound=BaseModel)
Location = tuple[int | str, ...]

EXPECTED: Mapping[str, str] = {
    "string_type": "a string",
    "string_unicode": "a string of valid Unicode",
    "int_type": "an integer",
    "int_from_float": "an integer",
    "int_parsing_size": "an integer that fits into 64 bits",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a table",
    "mapping_type": "a table",
    "model_type": "a table",
    "model_attributes_type": "a table",
    "dataclass_type": "a table",
}


def kebab(name: str) -> str:
    """The key in files for an attribute."""
    return name.replace("_", "-")


def _title(name: str, _: object) -> str:
    """Titles in the JSON Schemas: the key as it is written."""
    return kebab(name)


class Authored(BaseModel):
    """A table of a file that people write."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=kebab,
        validate_by_name=True,
        validate_by_alias=True,
        protected_namespaces=(),
        field_title_generator=_title,
    )


class Received(BaseModel):
    """An object of a file that comes from elsewhere."""

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        alias_generator=kebab,
        validate_by_name=True,
        validate_by_alias=True,
        protected_namespaces=(),
        field_title_generator=_title,
    )


def validate(model: type[Model], data: object) -> tuple[Model | None, list[ErrorDetails]]:
    """Validate what a file holds: keys as written in files only, every fault at once."""
    try:
        return model.model_validate(data, by_alias=True, by_name=False), []
    except ValidationError as error:
        return None, error.errors(include_url=False)


def dotted(location: Location) -> str:
    """("general", "kernel-depends", 0, "version") -> "general.kernel-depends[0].version"."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return text.removeprefix(".")


def problem(
    details: ErrorDetails,
    *,
    model: type[BaseModel],
    path: str,
    position: Callable[[Location, str], tuple[int, int] | None],
) -> Problem:
    """One error of pydantic as a problem of the file `path`.

    `position` finds a location in the text; its second argument is the kind of the error.
    """
    kind = details["type"]
    location: Location = tuple(part for part in details["loc"] if part != "[key]")
    message, hint, code = _wording(kind, location, details, model)
    line, column = position(location, code) or (None, None)
    return Problem(
        message=message,
        path=path,
        at=dotted(location) or None,
        line=line,
        column=column,
        hint=hint,
        code=code,
    )


def _wording(
    kind: str, location: Location, details: ErrorDetails, model: type[BaseModel]
) -> tuple[str, str | None, str]:
    found = details.get("input")
    context = details.get("ctx", {})
    if kind == "missing":
        return "this key is missing", _example(model, location), "missing-key"
    if kind == "extra_forbidden":
        known = keys_at(model, location[:-1])
        listing = f"known here: {', '.join(sorted(known))}" if known else None
        return "unknown key", _nearest(str(location[-1]), known) or listing, "unknown-key"
    if kind == "literal_error":
        expected = str(context["expected"])
        message = f"expected one of {expected}, found {shown(found)}"
        return message, _nearest(str(found), re.findall(r"'([^']*)'", expected)), "invalid-value"
    if kind == "greater_than_equal":
        return f"expected {context['ge']} or more, found {shown(found)}", None, "invalid-value"
    if kind == "less_than_equal":
        return f"expected {context['le']} or less, found {shown(found)}", None, "invalid-value"
    if kind in EXPECTED:
        message = f"expected {EXPECTED[kind]}, found {shown(found)}"
        return message, _example(model, location), "wrong-type"
    return details["msg"], context.get("hint") or None, "invalid-value"


def shown(value: object) -> str:
    """A value in an error text: short, and with its kind where that says more."""
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, list | tuple):
        return "a list"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = ascii(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _nearest(word: str, known: Sequence[str]) -> str | None:
    match = difflib.get_close_matches(word.lower()[:80], known, n=1, cutoff=0.6)
    return f"did you mean {match[0]!r}?" if match else None


def keys_at(model: type[BaseModel], location: Location) -> tuple[str, ...]:
    """The keys that the table at `location` may hold."""
    table = _model_at(model, location)
    if table is None:
        return ()
    return tuple(_key(name, field.alias) for name, field in table.model_fields.items())


def _example(model: type[BaseModel], location: Location) -> str | None:
    table = _model_at(model, location[:-1])
    if table is None or not location:
        return None
    for name, field in table.model_fields.items():
        if _key(name, field.alias) == location[-1] and field.examples:
            return f"for example {location[-1]} = {json.dumps(field.examples[0])}"
    return None


def _key(name: str, alias: str | None) -> str:
    return alias or name


def _model_at(model: type[BaseModel], location: Location) -> type[BaseModel] | None:
    for part in location:
        if isinstance(part, int):
            continue
        fields = {_key(name, field.alias): field for name, field in model.model_fields.items()}
        inner = _model_in(fields[part].annotation) if part in fields else None
        if inner is None:
            return None
        model = inner
    return model


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The model inside `X | None`, `tuple[X, ...]` and `Annotated[X, ...]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((m for m in map(_model_in, get_args(annotation)) if m is not None), None)
