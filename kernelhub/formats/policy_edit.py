"""Adding to and removing from a policy's text; every other byte of it stays as it is."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from kernelhub.errors import FormatError, InputError, Problem

from .policy import Policy
from .policy_toml import SCHEMA, parse_policy
from .toml_lines import load_toml

_START = f"# Whose kernels may run here; `kernelhub trust` changes it.\nschema = {SCHEMA}\n"


def with_item(text: str | None, key: str, item: str, path: str = "policy.toml") -> str:
    """The text with `item` in the list `key`; unchanged if it is there already.

    Args:
        text: the policy's text, None for a new one.

    Raises:
        FormatError: it is no sound policy, or is written in a way that cannot be changed safely.
    """
    text = _sound(text, path)
    raw, positions = load_toml(text, path)
    items: list[str] = raw.get(key, [])
    if item in items:
        return text
    if key in raw:
        start = positions.values[key,] + 1
        comma = ", " if items else ""
        changed = f"{text[:start]}{json.dumps(item)}{comma}{text[start:]}"
    else:
        changed = _with_key(text, f"{key} = [{json.dumps(item)}]")
    return _checked(changed, {**raw, key: [item, *items]}, path)


def without_item(text: str, key: str, item: str, path: str = "policy.toml") -> str:
    """The text without `item` in the list `key`.

    Raises:
        FormatError: as `with_item`.
        InputError: it is not in there.
    """
    raw, positions = load_toml(_sound(text, path), path)
    items: list[str] = raw.get(key, [])
    if item not in items:
        raise InputError(f"{path} does not name {item!r} under {key!r}")
    index = items.index(item)
    start = positions.values[key, index]
    if index + 1 < len(items):
        end = positions.values[key, index + 1]
    else:
        found = re.compile(r"[\"'][^\"']*[\"']\s*,?[ \t]*").match(text, start)
        end = found.end() if found else start
    changed = text[:start] + text[end:]
    return _checked(changed, {**raw, key: items[:index] + items[index + 1 :]}, path)


def with_signer(text: str | None, signer: Mapping[str, object], path: str = "policy.toml") -> str:
    """The text with one more `[[signers]]` table at its end.

    Args:
        signer: its keys as they are written in the file; values are strings, booleans or lists.

    Raises:
        FormatError: the result would be no sound policy; says why.
    """
    text = _sound(text, path)
    raw, _ = load_toml(text, path)
    lines = [f"{key} = {_value(value)}" for key, value in signer.items()]
    changed = text.rstrip("\n") + "\n\n" + "\n".join(["[[signers]]", *lines]) + "\n"
    wanted = {**raw, "signers": [*raw.get("signers", []), dict(signer)]}
    try:
        load_toml(changed, path)
    except FormatError as error:
        raise _by_hand(path) from error
    parse_policy(changed, path)  # tells what is wrong with the signer
    return _checked(changed, wanted, path)


def with_revoked(text: str, name: str, path: str = "policy.toml") -> str:
    """The text with the signer of that name revoked; unchanged if it is.

    Raises:
        FormatError: as `with_item`.
        InputError: there is none.
    """
    raw, positions = load_toml(_sound(text, path), path)
    signers: list[dict[str, Any]] = raw.get("signers", [])
    index = _index_of(signers, name, path)
    if signers[index].get("revoked"):
        return text
    text = text.removeprefix("\ufeff")
    stated = positions.values.get(("signers", index, "revoked"))
    if stated is not None:
        changed = f"{text[:stated]}true{text[stated + len('false') :]}"
    else:
        start = positions.keys.get(("signers", index, "name"), 0)
        changed = f"{text[:start]}revoked = true\n{text[start:]}"
    revoked = {**signers[index], "revoked": True}
    wanted = [*signers[:index], revoked, *signers[index + 1 :]]
    return _checked(changed, {**raw, "signers": wanted}, path)


def without_signer(text: str, name: str, path: str = "policy.toml") -> str:
    """The text without the signer of that name.

    Raises:
        FormatError: as `with_item`.
        InputError: there is none.
    """
    raw, positions = load_toml(_sound(text, path), path)
    signers: list[dict[str, Any]] = raw.get("signers", [])
    index = _index_of(signers, name, path)
    first = positions.keys.get(("signers", index))
    if first is None:
        raise _by_hand(path)
    later = sorted(
        offset
        for where, offset in positions.keys.items()
        if offset > first and where[:2] != ("signers", index) and text.startswith("[", offset)
    )
    changed = text[:first] + (text[later[0] :] if later else "")
    rest = signers[:index] + signers[index + 1 :]
    wanted = {**raw, "signers": rest} if rest else {k: v for k, v in raw.items() if k != "signers"}
    return _checked(changed.rstrip("\n") + "\n", wanted, path)


def _index_of(signers: list[dict[str, Any]], name: str, path: str) -> int:
    index = next((i for i, signer in enumerate(signers) if signer["name"] == name), None)
    if index is None:
        raise InputError(f"{path} names no signer {name!r}")
    return index


def _sound(text: str | None, path: str) -> str:
    if text is None:
        return _START
    _: Policy = parse_policy(text, path)
    return text.removeprefix("\ufeff")


def _with_key(text: str, line: str) -> str:
    """Add a key above the first table."""
    lines = text.split("\n")
    first = next((i for i, old in enumerate(lines) if old.lstrip().startswith("[")), len(lines))
    while first > 0 and (not lines[first - 1].strip() or lines[first - 1].startswith("#")):
        first -= 1
    return "\n".join([*lines[:first], line, *lines[first:]])


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        if "\n" in value and "'''" not in value:
            return f"'''\n{value.strip()}\n'''"
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(item) for item in value)}]"
    raise TypeError(f"{value!r} cannot be written here")


def _checked(changed: str, wanted: Mapping[str, Any], path: str) -> str:
    try:
        parse_policy(changed, path)
        raw = load_toml(changed, path)[0]
    except FormatError as error:
        raise _by_hand(path) from error
    if _normal(raw) != _normal(wanted):
        raise _by_hand(path)
    return changed


def _normal(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _normal(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_normal(item) for item in value]
    return value.strip() if isinstance(value, str) else value


def _by_hand(path: str) -> FormatError:
    message = "this file is written in a way that cannot be changed without touching more of it"
    return FormatError(path, [Problem(message=message, path=path)], hint="change it with an editor")
