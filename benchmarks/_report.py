"""What every benchmark prints: a table for people, or one JSON object.

    {"figures": [{"name", "value", "unit", "target", "met", "peer", "note"}],
     "environment": {...}, "command": "...", "samples": {...}}

`met` is null where no target is set. Targets are upper bounds unless a figure says otherwise;
`samples` are there where a script takes some.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("kernelhub", "torch", "triton", "jax", "numpy", "huggingface_hub", "kernels")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured value.

    Attributes:
        name: short, stable, kebab-case.
        value: as measured.
        unit: "requests", "s", "ms", "MB", "%", ...
        target: what it has to be, None if nothing is asked of it.
        at_least: the target is a lower bound.
        peer: the same of the peer in the same run, or what the value is a ratio against; None if
            there is neither.
        note: how it was taken, where the name does not say it.
    """

    name: str
    value: float
    unit: str
    target: float | None = None
    at_least: bool = False
    peer: float | str | None = None
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the target is met, None if there is none."""
        if self.target is None:
            return None
        return self.value >= self.target if self.at_least else self.value <= self.target

    def as_json(self) -> dict[str, Any]:
        """The object of the `figures` list."""
        return {**asdict(self), "met": self.met}


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All figures of one run."""

    title: str
    figures: Sequence[Figure]
    environment: Mapping[str, Any] = field(default_factory=dict)
    samples: Mapping[str, Sequence[float]] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The whole object."""
        value = {
            "figures": [figure.as_json() for figure in self.figures],
            "environment": dict(self.environment) or environment(),
            "command": command(),
        }
        return value | ({"samples": dict(self.samples)} if self.samples else {})

    def table(self) -> str:
        """The figures, aligned."""
        rows = [("figure", "ours", "peer", "target", "", "note")]
        rows += [_row(figure) for figure in self.figures]
        widths = [max(len(row[column]) for row in rows) for column in range(5)]
        lines = [
            "  ".join([*(cell.ljust(w) for cell, w in zip(row, widths, strict=False)), row[5]])
            for row in rows
        ]
        return "\n".join([self.title, "", *(line.rstrip() for line in lines)])


def arguments(description: str | None) -> argparse.ArgumentParser:
    """A parser with the option that every benchmark has: --json [FILE]."""
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    parser.add_argument(
        "--json", nargs="?", const="-", metavar="FILE",
        help="print one JSON object in place of the table, or write it to FILE beside the table",
    )  # fmt: skip
    return parser


def emit(report: Report, options: argparse.Namespace) -> int:
    """Print the report as asked; the exit code is 3 where a target is missed."""
    text = json.dumps(report.as_json(), indent=2)
    print(text if options.json == "-" else report.table())
    if options.json not in (None, "-"):
        file = Path(options.json)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n", encoding="utf-8")
    return 3 if any(figure.met is False for figure in report.figures) else 0


def environment(packages: Iterable[str] = PACKAGES, **more: Any) -> dict[str, Any]:
    """What the figures depend on: versions, processor count, system, and what the script adds."""
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpus": os.cpu_count(),
        "packages": {name: version for name in packages if (version := _version(name))},
        **more,
    }


def command() -> str:
    """The command line of this process, without the interpreter's path."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    head = ["python", "-m", spec.name] if spec is not None else ["python", *sys.argv[:1]]
    return shlex.join([*head, *sys.argv[1:]])


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _row(figure: Figure) -> tuple[str, ...]:
    bound = ">=" if figure.at_least else "<="
    target = "" if figure.target is None else f"{bound} {_number(figure.target)}"
    verdict = {None: "", True: "met", False: "MISSED"}[figure.met]
    peer = figure.peer if isinstance(figure.peer, str) else _number(figure.peer)
    value = f"{_number(figure.value)} {figure.unit}"
    return (figure.name, value, peer, target, verdict, figure.note)


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:g}" if float(value).is_integer() else f"{value:.3g}"
