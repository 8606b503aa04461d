"""The durable store of measurements: an append-only file of JSON lines.

`tuning/measurements/<kernel>.<device-slug>.jsonl` in the project. Three kinds of line,

    {"context": "<id>", "kernel": ..., "source": ..., "device": {}, "tools": {}, "policy": {}}
    {"point": "<id>", "features": {...}, "weight": ..., "held_out": ..., "case": ...}
    {"result": [context id, point id], "config": {...}, "samples": [ms, ...]}      a measurement
    {"result": [context id, point id], "config": {...}, "reason": ..., "detail": ...}     a failure

with `"pruned": true` in a result where the author's pruning drops the configuration on that point,
or where the launch itself refuses it and dispatch takes the next in rank.

Ids are hashes of content, so what was measured on other hardware, with other tools, under another
policy or for another source of the kernel has another context and is never mixed in, and two files
can be joined by concatenation. A point that is written again replaces its weight and flags. Every
line is flushed to the disk before the call returns. A last line that a crash cut short is dropped
by the next reader and cut off by the next writer.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from kernel_builder.tuning.matrix import REASONS, Cell, Matrix, Point, config_key
from kernel_builder.tuning.summary import summarise
from kernelhub.errors import FormatError, Problem, StoreError
from kernelhub.formats.tree import Config, DeviceFacts, Literal
from kernelhub.formats.tree_model import MAX_TEXT

# Far beyond what is measured; what lies outside was not, and would overflow in the fit.
_MOST_FEATURE = 2**64
_MOST_WEIGHT = 1e30
_LEAST_MS, _MOST_MS = 1e-9, 1e12


def content_id(value: object) -> str:
    """A short hash of any JSON value."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Everything that must be equal for two measurements to be comparable.

    Attributes:
        kernel: dotted name of the tunable below the package.
        source: hash of the kernel's source.
        device: what was measured on.
        tools: versions, such as {"triton": ..., "torch": ..., "driver": ...}.
        policy: how was measured, such as {"method": "cuda-graphs", "l2": "warm"}.
    """

    kernel: str
    source: str
    device: DeviceFacts
    tools: Mapping[str, str]
    policy: Mapping[str, Literal]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "kernel": self.kernel,
            "source": self.source,
            "device": asdict(self.device),
            "tools": dict(self.tools),
            "policy": dict(self.policy),
        }

    @property
    def id(self) -> str:
        """Hash of all of it."""
        return content_id(self.to_json())


@dataclass(slots=True)
class _Raw:
    """What is known of one cell: all samples, or the last failure."""

    method: object  # of its context's policy
    samples: list[float] = field(default_factory=list)
    reason: str | None = None
    detail: str = ""
    pruned: bool = False
    _cell: Cell | None = None

    def add(self, samples: Sequence[float], row: Mapping[str, Any]) -> None:
        self.samples += samples
        self.pruned = row.get("pruned") is True
        if row.get("reason") is not None:
            self.reason, self.detail = row["reason"], str(row.get("detail", ""))
        self._cell = None

    @property
    def cell(self) -> Cell:
        """The summary, computed once after each change."""
        if self._cell is None:
            found = (
                summarise(self.samples, self.method)
                if self.reason is None
                else Cell(reason=self.reason, detail=self.detail, samples=len(self.samples))
            )
            self._cell = replace(found, pruned=self.pruned)
        return self._cell


class Measurements:
    """The content of one measurement file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.contexts: dict[str, Context] = {}
        self.points: dict[str, Point] = {}
        self.torn = False
        self._cells: dict[str, dict[str, dict[str, _Raw]]] = {}  # context, point, configuration
        self._configs: dict[str, Config] = {}
        self._order: list[str] = []  # contexts, oldest first

    @classmethod
    def read(cls, path: Path) -> Measurements:
        """Read a file; one that does not exist is empty.

        Raises:
            FormatError: lines other than a torn last one are malformed; all of them are named.
            StoreError: the file cannot be read.
        """
        found = cls(path)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return found
        except OSError as error:
            raise StoreError(f"cannot read {path}: {error.strerror}") from error
        lines = data.split(b"\n")
        found.torn = lines[-1] != b""
        checked = (found._fault(number, line) for number, line in enumerate(lines[:-1], start=1))
        problems = [problem for problem in checked if problem is not None]
        if problems:
            raise FormatError(str(path), problems, hint="remove these lines; the others stay good")
        return found

    def _fault(self, number: int, line: bytes) -> Problem | None:
        """Take in one line, or say what is wrong with it."""
        try:
            self.add(json.loads(line))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            return Problem(
                message=f"not a measurement line: {error!r}"[:200],
                path=self.path.name,
                line=number,
                code="measurement-line",
            )
        return None

    def add(self, row: Mapping[str, Any]) -> None:
        """Take in one line. Raises ValueError, KeyError or TypeError for a malformed one."""
        if "context" in row:
            context = Context(
                kernel=_text(row["kernel"]),
                source=_text(row["source"]),
                device=DeviceFacts(**row["device"]),
                tools=dict(row["tools"]),
                policy=dict(row["policy"]),
            )
            if context.id != row["context"]:
                raise ValueError("the context's id is not the hash of its content")
            self.contexts[context.id] = context
            self._order = [c for c in self._order if c != context.id] + [context.id]
        elif "point" in row:
            weight = float(row["weight"])
            if not 1 / _MOST_WEIGHT <= weight <= _MOST_WEIGHT:
                raise ValueError(f"weight must be from {1 / _MOST_WEIGHT} to {_MOST_WEIGHT}")
            self.points[_text(row["point"])] = Point(
                id=row["point"],
                features={name: _feature(name, v) for name, v in row["features"].items()},
                weight=weight,
                held_out=bool(row["held_out"]),
                case=str(row["case"]),
            )
        else:
            self._add_result(row)

    def _add_result(self, row: Mapping[str, Any]) -> None:
        context, point = row["result"]
        if context not in self.contexts or point not in self.points:
            raise ValueError("a result before its context or point")
        samples = [float(s) for s in row.get("samples", ())]
        if not all(_LEAST_MS <= s <= _MOST_MS for s in samples):
            raise ValueError(f"samples must be from {_LEAST_MS} to {_MOST_MS} ms")
        reason = row.get("reason")
        if (reason is None) == (not samples) or reason not in (None, *REASONS):
            raise ValueError(f"either samples or one of the reasons {', '.join(REASONS)}")
        key = config_key(row["config"])
        self._configs.setdefault(key, dict(row["config"]))
        of_point = self._cells.setdefault(context, {}).setdefault(point, {})
        method = self.contexts[context].policy.get("method")
        of_point.setdefault(key, _Raw(method)).add(samples, row)

    def cell(self, context: str, point: str, config: Config) -> Cell | None:
        """What is known of one configuration on one point, None if nothing."""
        raw = self._cells.get(context, {}).get(point, {}).get(config_key(config))
        return None if raw is None else raw.cell

    def known(self, context: str, point: str) -> dict[str, Cell]:
        """What is known of one point, by configuration key."""
        return {key: raw.cell for key, raw in self._cells.get(context, {}).get(point, {}).items()}

    def newest_first(self) -> list[Context]:
        """All contexts, the one that was measured last first."""
        return [self.contexts[name] for name in reversed(self._order)]

    def matrix(self, context: Context) -> Matrix:
        """All cells of one context, for the points that have any."""
        mine = self._cells.get(context.id, {})
        keys = {key for cells in mine.values() for key in cells}
        return Matrix(
            kernel=context.kernel,
            points=tuple(p for p in self.points.values() if p.id in mine),
            configs=tuple(c for key, c in self._configs.items() if key in keys),
            cells={(p, key): raw.cell for p, cells in mine.items() for key, raw in cells.items()},
        )

    def count(self, context: Context) -> int:
        """Number of cells of a context."""
        return sum(map(len, self._cells.get(context.id, {}).values()))

    def foreign(self, context: Context) -> int:
        """Number of cells that belong to another context and are therefore not used."""
        return sum(self.count(other) for name, other in self.contexts.items() if name != context.id)


def _feature(name: str, value: object) -> Literal:
    """A value that a tree may test, or None; what no launch has would fail in the fit instead."""
    if isinstance(value, str) and len(value) <= MAX_TEXT:
        value.encode()  # refuses half a surrogate pair, which evidence could not hold
        return value
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, (int, float)) and abs(value) <= _MOST_FEATURE:
        return value
    raise ValueError(
        f"feature {name!r}: {value!r:.40} is no number, text or truth value of a launch"
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected text, found {value!r}")
    return value
