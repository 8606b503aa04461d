"""JSON Schemas generated from the models that read the files.

Draft 7 is what editors' TOML and JSON plug-ins know.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from .build_model import BuildToml
from .evidence import Evidence
from .lock_model import LockToml
from .metadata_model import Metadata
from .policy_toml import PolicyFile

VERSION = 1
_MODELS: Mapping[str, type[BaseModel]] = {
    "build.toml": BuildToml,
    "evidence": Evidence,
    "kernelhub.lock": LockToml,
    "metadata.json": Metadata,
    "policy.toml": PolicyFile,
}
NAMES = tuple(_MODELS)


def file_name(name: str) -> str:
    """The name of a schema's own file: "build.toml" -> "build.toml.schema.json"."""
    return f"{name}.schema.json"


def render(name: str) -> str:
    """The schema of one of NAMES as text, ready to be written."""
    model = _MODELS[name]
    body = model.model_json_schema(by_alias=True, ref_template="#/definitions/{model}")
    definitions = {
        key: _plain(value, authored=name.endswith((".toml", ".lock")))
        for key, value in sorted(body.pop("$defs", {}).items())
    }
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$id": f"urn:kernelhub:schema:v{VERSION}:{name}",
        **_plain(body, authored=name.endswith((".toml", ".lock"))),
        "definitions": definitions,
    }
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _plain(node: Any, *, authored: bool) -> Any:
    """Rewrite what pydantic writes for draft 2020-12 so that draft 7 and editors read it.

    Beside a `$ref` draft 7 reads nothing, so it moves into `allOf`. TOML has no null, so in its
    files the alternative of null, and null as a default, only disturb completion.
    """
    if isinstance(node, list):
        return [_plain(item, authored=authored) for item in node]
    if not isinstance(node, dict):
        return node
    result = {key: _plain(value, authored=authored) for key, value in node.items()}
    if authored and "anyOf" in result:
        kept = [option for option in result["anyOf"] if option != {"type": "null"}]
        if len(kept) == 1:
            del result["anyOf"]
            result = {**kept[0], **result}
    if authored and result.get("default", ...) is None:
        del result["default"]
    if "$ref" in result and len(result) > 1:
        result["allOf"] = [{"$ref": result.pop("$ref")}]
    return result
