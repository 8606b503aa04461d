"""The kernels that a `pyproject.toml` asks for: our table, and that of HF's client.

[tool.kernelhub.dependencies]
"org/flash-attn" = ">=1,<3"     # specifiers, "*" for the newest, "@<commit>", or an integer

[tool.kernels.dependencies]     # HF's: integers only
"org/norms" = 1
"""

from __future__ import annotations

from typing import Any

from kernelhub.errors import FormatError, Problem, RequirementError

from .models import shown
from .names import repo_id_fault
from .requirement import Requirement, parse_requirement, pinned
from .requirements_file import Listed
from .toml_lines import Positions, load_toml

_OURS = ("tool", "kernelhub", "dependencies")
_HF = ("tool", "kernels", "dependencies")
_KNOWN = frozenset({"dependencies"})
_FORMS = 'write "org/name" = ">=1,<3", = 1, = "*" or = "@<commit>"'


def parse_pyproject(data: str | bytes, path: str = "pyproject.toml") -> tuple[Listed, ...]:
    """The requirements of both tables, in the order of the file; empty if it has neither.

    Args:
        data: the text of the file, or its bytes as they are on disk.
        path: its name in error texts.

    Raises:
        FormatError: every fault of these tables, each with line and column; or it is no TOML.
    """
    raw, positions = load_toml(data, path)
    problems = _unknown_keys(raw, path, positions)
    found: list[Listed] = []
    for table in (_OURS, _HF):
        for name, value in _table(raw, table, path, positions, problems).items():
            line, column = positions.key((*table, name))
            try:
                requirement = _requirement(name, value, hf=table is _HF)
            except (RequirementError, ValueError) as error:
                reason = error.reason if isinstance(error, RequirementError) else str(error)
                at = ".".join((*table, name))
                problems.append(
                    Problem(
                        message=reason,
                        path=path,
                        at=at,
                        line=line,
                        column=column,
                        hint=_FORMS if table is _OURS else "HF's table takes integers only",
                        code="requirement",
                    )
                )
                continue
            found.append(Listed(requirement=requirement, path=path, line=line))
    if problems:
        raise FormatError(path, sorted(problems, key=lambda p: (p.line or 0, p.column or 0)))
    return tuple(sorted(found, key=lambda listed: listed.line))


def _requirement(name: str, value: object, *, hf: bool) -> Requirement:
    if fault := repo_id_fault(name):
        raise ValueError(fault)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return parse_requirement(f"{name}=={value}")
    if hf or not isinstance(value, str):
        raise ValueError(f"expected a version, found {shown(value)}")
    return parse_requirement(name) if value.strip() in ("", "*") else pinned(name, value)


def _table(
    raw: dict[str, Any],
    names: tuple[str, ...],
    path: str,
    positions: Positions,
    problems: list[Problem],
) -> dict[str, Any]:
    value: Any = raw
    for depth, name in enumerate(names, 1):
        value = value.get(name, {})
        if not isinstance(value, dict):
            line, column = positions.value(names[:depth])
            problems.append(
                Problem(
                    message=f"expected a table, found {shown(value)}",
                    path=path,
                    at=".".join(names[:depth]),
                    line=line,
                    column=column,
                    code="wrong-type",
                )
            )
            return {}
    return dict(value)


def _unknown_keys(raw: dict[str, Any], path: str, positions: Positions) -> list[Problem]:
    tool = raw.get("tool")
    ours = tool.get("kernelhub") if isinstance(tool, dict) else None
    if not isinstance(ours, dict):
        return []
    found = []
    for key in ours.keys() - _KNOWN:
        line, column = positions.key(("tool", "kernelhub", key))
        found.append(
            Problem(
                message="unknown key",
                path=path,
                at=f"tool.kernelhub.{key}",
                line=line,
                column=column,
                hint="known here: dependencies",
                code="unknown-key",
            )
        )
    return found
