"""What every script here prints: a table for people, or one JSON object with `--json`."""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One number. `target` is the most (or with `at_least` the least) that it should be."""

    name: str
    value: float
    unit: str
    target: float | None = None
    at_least: bool = False
    peer: str | None = None
    note: str = ""

    @property
    def met(self) -> bool | None:
        if self.target is None:
            return None
        return self.value >= self.target if self.at_least else self.value <= self.target


def environment(**more: Any) -> dict[str, Any]:
    """Python, platform and the packages that matter here."""
    found = {"python": platform.python_version(), "platform": platform.platform(), **more}
    installed = {d.metadata["Name"].lower(): d.version for d in metadata.distributions()}
    return found | {name: installed[name] for name in ("torch", "triton") if name in installed}


def arguments(description: str | None, **more: Callable[..., Any]) -> argparse.Namespace:
    """Parse `--json [FILE]` and further options, each a name and the type of its value."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", nargs="?", const="-", metavar="FILE", help="print or write JSON")
    for name, kind in more.items():
        parser.add_argument(f"--{name}", type=kind)
    return parser.parse_args()


def report(
    figures: Sequence[Figure],
    *,
    to: str | None,
    environment: dict[str, Any],
    samples: dict[str, list[float]] | None = None,
) -> None:
    """Print the table, or the JSON object with its raw samples."""
    if to is None:
        _table(figures, environment)
        return
    rows = [{**asdict(figure), "met": figure.met} for figure in figures]
    for row in rows:
        del row["at_least"]
    command = " ".join(["python", "-m", f"benchmarks.{Path(sys.argv[0]).stem}", *sys.argv[1:]])
    data = {"figures": rows, "environment": environment, "command": command}
    text = json.dumps(data | ({"samples": samples} if samples else {}), indent=1)
    if to == "-":
        print(text)
    else:
        Path(to).write_text(text + "\n")


def _table(figures: Sequence[Figure], environment: dict[str, Any]) -> None:
    print(", ".join(f"{name} {value}" for name, value in environment.items()))
    width = max(len(figure.name) for figure in figures)
    for figure in figures:
        goal = "" if figure.target is None else f"  target {figure.target:g}"
        verdict = {None: "", True: " met", False: " MISSED"}[figure.met]
        note = f"  ({figure.note})" if figure.note else ""
        print(f"{figure.name:{width}} {figure.value:9.3f} {figure.unit}{goal}{verdict}{note}")


def median(values: Sequence[float]) -> float:
    """The median."""
    return float(statistics.median(values))
