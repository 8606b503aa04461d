"""JSON that was received: what Python's parser lets pass and other readers do not is refused."""

from __future__ import annotations

import json

from kernelhub.errors import FormatError, Problem

_MAX_DIGITS = 40


class _Refused(ValueError):
    """Something that is JSON to Python only."""


def load_json(data: bytes, path: str) -> object:
    """Parse JSON in UTF-8.

    Raises:
        FormatError: not UTF-8, no JSON, a key given twice, NaN or Infinity, an integer of more than
            40 digits, or nested too deeply.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8")
        line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
        raise _fault(path, "this is not UTF-8", line, column) from error
    try:
        return json.loads(
            text, object_pairs_hook=_unique, parse_constant=_constant, parse_int=_integer
        )
    except json.JSONDecodeError as error:
        message = f"this is not JSON: {error.msg[:1].lower()}{error.msg[1:]}"
        raise _fault(path, message, error.lineno, error.colno) from error
    except _Refused as error:
        raise _fault(path, str(error)) from error
    except RecursionError as error:
        raise _fault(path, "nested too deeply") from error


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result: dict[str, object] = {}
    for key, value in pairs:
        if key in result:
            raise _Refused(f"the key {ascii(key)[:60]} is given twice in one object")
        result[key] = value
    return result


def _constant(name: str) -> object:
    raise _Refused(f"{name} is no JSON value")


def _integer(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise _Refused(f"an integer of {len(digits)} digits is too large")
    return int(digits)


def _fault(
    path: str, message: str, line: int | None = None, column: int | None = None
) -> FormatError:
    return FormatError(
        path, [Problem(message=message, path=path, line=line, column=column, code="json-syntax")]
    )
