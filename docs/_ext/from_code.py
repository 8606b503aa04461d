"""Directives whose contents are made from the code when the documentation is built.

    ```{from-code} check-rules
    ```

Each name of `TABLES` is a function that returns Markdown, so a page cannot tell other facts than
the code does.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import kernelhub.cli
from kernel_builder.check import RULES
from kernelhub import errors
from kernelhub.formats import json_schema
from kernelhub.interpreter.patches import PATCHES
from kernelhub.settings import Settings

_ATTRIBUTE = re.compile(r"^ {4,}(\w+): (.*?)(?=^ {4,}\w+: |\Z)", re.MULTILINE | re.DOTALL)
_TABLE_NAMES = re.compile(r"^\[[^]]+\](?: and \[[^]]+\])?: ")
_VARIABLE = re.compile(r"`[A-Z][A-Z_]+(?:=\w+)?`")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table. Cells become one line."""
    lines = [list(head), ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(text: str) -> str:
    """What would end a cell or begin HTML is escaped, outside code."""
    parts = " ".join(text.split()).replace("|", r"\|").split("`")
    return "`".join(part if at % 2 else part.replace("<", r"\<") for at, part in enumerate(parts))


def check_rules() -> str:
    """Every code that `kernel-builder check` may print."""
    rows = [
        (f"`{code}`", kind, rule.name, text)
        for rule in RULES
        for kind, codes in (("fault", rule.faults), ("note", rule.notes))
        for code, text in codes.items()
    ]
    return table(("code", "kind", "rule", "what it says"), rows)


def settings() -> str:
    """The environment variables, from the docstring and the defaults of `Settings`."""
    text = inspect.cleandoc(Settings.__doc__ or "").partition("Attributes:")[2]
    told = {name: " ".join(what.split()) for name, what in _ATTRIBUTE.findall(text)}
    rows = []
    for field in fields(Settings):
        sentence = told[field.name]
        named = _VARIABLE.search(sentence)
        split = named.start() if named else len(sentence)
        what, variables = sentence[:split].strip(" ."), sentence[split:].strip(" .")
        rows.append((variables, what, _default(field.default), f"`{field.name}`"))
    return table(("variable", "what it says", "default", "attribute of `Settings`"), rows)


def _default(value: object) -> str:
    if value is MISSING or value in (None, ()):
        return ""
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else f"`{value}`"


def error_tree() -> str:
    """The tree of errors as it stands at the top of the module."""
    drawn = [line for line in (errors.__doc__ or "").splitlines() if line.startswith("    ")]
    return "\n".join(["```text", inspect.cleandoc("\n".join(drawn)), "```"])


def exit_codes() -> str:
    """The exit codes, from the docstring of `kernelhub.cli`."""
    text = " ".join((kernelhub.cli.__doc__ or "").partition("Exit codes:")[2].split())
    rows = (part.strip(" .").split(" ", 1) for part in text.split(";"))
    return table(("code", "meaning"), [(f"`{code}`", what) for code, what in rows])


def interpreter_faults() -> str:
    """What is put right in Triton's interpreter."""
    rows = [(f"`{p.name}`", p.reason, ", ".join(p.seen)) for p in PATCHES]
    return table(("name", "without the correction", "seen in Triton"), rows)


def build_toml() -> str:
    return _schema("build.toml", style="[{}]")


def metadata_json() -> str:
    return _schema("metadata.json", style="`{}`")


def evidence_json() -> str:
    return _schema("evidence", style="`{}`")


def _schema(name: str, style: str) -> str:
    """One table of keys for each object of a schema, the outermost first."""
    schema = json.loads(json_schema.render(name))
    parts = []
    for path, node in _objects(schema, schema, ""):
        title = f"**{style.format(path)}**\n\n{_first_line(node)}\n\n" if path else ""
        parts.append(f"{title}{_keys(node, schema)}")
    return "\n\n".join(parts)


def _first_line(node: Mapping[str, Any]) -> str:
    text = str(node.get("description", "")).partition("\n\n")[0]
    text = _TABLE_NAMES.sub("", text)  # the title says them
    return text[:1].upper() + text[1:]


def _objects(
    node: Mapping[str, Any], schema: Mapping[str, Any], path: str
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if "properties" in node:
        yield path, node
    for key, value in node.get("properties", {}).items():
        for inner in _targets(value, schema):
            yield from _objects(inner, schema, f"{path}.{key}" if path else key)


def _targets(value: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The objects that a key may hold."""
    if "$ref" in value:
        yield schema["definitions"][value["$ref"].rpartition("/")[2]]
    for word in ("allOf", "anyOf", "oneOf"):
        for option in value.get(word, ()):
            yield from _targets(option, schema)
    if isinstance(value.get("items"), dict):
        yield from _targets(value["items"], schema)
    if isinstance(value.get("additionalProperties"), dict):
        yield from _targets(value["additionalProperties"], schema)


def _keys(node: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    required = set(node.get("required", ()))
    rows = [
        (
            f"`{key}`",
            _kind(value, schema),
            "required" if key in required else _shown_default(value),
            str(value.get("description", "")) + _example(value),
        )
        for key, value in node.get("properties", {}).items()
    ]
    return table(("key", "type", "default", "meaning"), rows)


def _kind(value: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    if "properties" in value:
        return "table"
    if "enum" in value:
        return "one of " + ", ".join(f"`{item}`" for item in value["enum"])
    if "const" in value:
        return f"`{json.dumps(value['const'])}`"
    if "$ref" in value:
        target = schema["definitions"][value["$ref"].rpartition("/")[2]]
        return _kind({k: v for k, v in target.items() if k != "$ref"}, schema)
    for word in ("allOf", "anyOf", "oneOf"):
        if word in value:
            return " or ".join(dict.fromkeys(_kind(option, schema) for option in value[word]))
    if value.get("type") == "array":
        items = value.get("items")
        return f"list of {_kind(items, schema)}" if isinstance(items, dict) else "list"
    return {"object": "table", "null": "null"}.get(value.get("type", ""), value.get("type", "any"))


def _shown_default(value: Mapping[str, Any]) -> str:
    default = value.get("default")
    return "" if default in (None, [], {}) else f"`{json.dumps(default)}`"


def _example(value: Mapping[str, Any]) -> str:
    examples = value.get("examples", ())
    return f" Such as `{json.dumps(examples[0])}`." if examples else ""


TABLES: Mapping[str, Callable[[], str]] = {
    "build-toml": build_toml,
    "check-rules": check_rules,
    "error-tree": error_tree,
    "evidence-json": evidence_json,
    "exit-codes": exit_codes,
    "interpreter-faults": interpreter_faults,
    "metadata-json": metadata_json,
    "settings": settings,
}


class FromCode(SphinxDirective):
    """`{from-code} NAME`: the Markdown that TABLES[NAME] makes."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        text = TABLES[self.arguments[0]]()
        holder = nodes.Element()
        source = f"from-code {self.arguments[0]}"
        self.state.nested_parse(StringList(text.splitlines(), source), 0, holder)
        return holder.children


def without_tree(*event: Any) -> None:
    """The docstring of `errors` is drawn by `error_tree`; as text it would run together."""
    _app, _what, name, _object, _options, lines = event
    if name == "kernelhub.errors":
        lines.clear()


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("from-code", FromCode)
    app.connect("autodoc-process-docstring", without_tree)
    return {"parallel_read_safe": True}
