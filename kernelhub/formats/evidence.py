"""The evidence of a tree: everything that was measured, how, and how well the tree does.

It lies beside the tree (`tuning/<kernel>.<device>.json`) so that anybody can check a choice, fit
again, or compare with measurements of their own. Measurements are columns of equal length, one
entry for each pair of point and configuration: hundreds of points stay well below a megabyte.
`schemas/v1/evidence.schema.json` is generated from `Evidence`.
"""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from kernelhub.errors import FormatError, Problem

from .tree import DeviceFacts

SCHEMA_VERSION = 1
MAX_BYTES = 64 * 1024 * 1024

Value = bool | int | float | str | None
Index = Annotated[int, Field(ge=0)]
Microseconds = Annotated[float, Field(gt=0, lt=1e12)]
Ratio = Annotated[float, Field(ge=0, lt=1e9)]
_LINE = re.compile(r"line (\d+) column (\d+)")


class _Model(BaseModel):
    # Received files may hold keys of later minor versions; infinities are no measurement.
    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False, strict=True)


class Device(_Model):
    """The device, as in the tree. Sizes in bytes."""

    name: str
    arch: str
    sm_count: Index
    memory: Index
    shared_memory: Index

    @classmethod
    def of(cls, facts: DeviceFacts) -> Device:
        """From the facts that the rest of the house speaks of."""
        return cls(**{name: getattr(facts, name) for name in DeviceFacts.__dataclass_fields__})

    def facts(self) -> DeviceFacts:
        """The inverse of `of`."""
        return DeviceFacts(**self.model_dump())


class Policy(_Model):
    """How times were taken. Times taken in different ways are never compared.

    Attributes:
        method: "graph" replays a captured CUDA graph, "events" times eager launches on the
            device, "wall" is host time around a synchronised call.
        cache: whether the kernel found its inputs in the L2 cache of the runs before.
        repeats: launches in one timed sample.
        warmup: launches before the first sample.
    """

    method: Literal["graph", "events", "wall"]
    cache: Literal["warm", "cold"]
    repeats: Annotated[int, Field(ge=1)]
    warmup: Index


class Point(_Model):
    """One launch that was measured.

    Attributes:
        name: as the workload calls it.
        launch: `dispatch.launch.Launch.to_json()`.
        features: what trees may test, by name.
        weight: how much it counts.
        held_out: kept away from fitting.
    """

    name: str
    launch: dict[str, Any]
    features: dict[str, Value]
    weight: Annotated[float, Field(gt=0)] = 1.0
    held_out: bool = False


class Measurements(_Model):
    """Columns: entry i of each belongs together. Times in microseconds of one launch.

    Attributes:
        point, config: indices into `points` and `configs`.
        median: of the samples.
        error: half the width of a 95 % interval of the median.
        low, high: 20 % and 80 % quantiles of the samples.
        samples: how many there were.
    """

    point: list[Index] = []
    config: list[Index] = []
    median: list[Microseconds] = []
    error: list[Annotated[float, Field(ge=0, lt=1e12)]] = []
    low: list[Microseconds] = []
    high: list[Microseconds] = []
    samples: list[Annotated[int, Field(ge=1)]] = []

    @model_validator(mode="after")
    def _rectangular(self) -> Measurements:
        lengths = {len(getattr(self, name)) for name in type(self).model_fields}
        if len(lengths) != 1:
            raise ValueError("the columns differ in length")
        return self


class Failure(_Model):
    """A configuration that has no time at a point.

    `reason`: "resources" does not fit the device, "compile" does not compile, "wrong" computes
    another result than the reference, "crash" took its process down, "timeout" took too long,
    "dropped" was clearly slower than others and not measured to the end, "error" anything else.
    """

    point: Index
    config: Index
    reason: Literal["resources", "compile", "wrong", "crash", "timeout", "dropped", "error"]
    detail: str = ""


class Statistics(_Model):
    """Slowdown of the tree against the best known, over some points; 1 is as good as the best.

    `single` is the same for the best single configuration, for comparison.
    """

    points: Index
    geomean: Ratio
    worst: Ratio
    single: Ratio | None = None


class Miss(_Model):
    """A point at which the goal is not met."""

    point: Index
    slowdown: Ratio


class Evidence(_Model):
    """The file.

    Attributes:
        schema_version: major version of this format.
        kernel: dotted name below the package.
        source_hash: of the source that was measured.
        tools: versions: triton, torch, jax, python, kernelhub.
        driver: version of the device's driver.
        max_slowdown: the goal.
        fit: over the points that the tree was fitted to.
        held_out: over the points that it was not.
        leave_one_out: each point by a tree fitted without it.
        misses: where the goal is not met and the author accepted it.
    """

    schema_version: Annotated[int, Field(ge=1)] = SCHEMA_VERSION
    kernel: str
    source_hash: str
    tools: dict[str, str]
    driver: str | None = None
    device: Device
    policy: Policy
    configs: list[dict[str, Value]]
    points: list[Point]
    measurements: Measurements
    failures: list[Failure] = []
    max_slowdown: Annotated[float, Field(ge=1)]
    fit: Statistics | None = None
    held_out: Statistics | None = None
    leave_one_out: Statistics | None = None
    misses: list[Miss] = []

    @model_validator(mode="after")
    def _indices_exist(self) -> Evidence:
        rows = [*self.failures, *self.misses]
        points = [*self.measurements.point, *(row.point for row in rows)]
        configs = [*self.measurements.config, *(failure.config for failure in self.failures)]
        if max(points, default=-1) >= len(self.points):
            raise ValueError("a measurement or failure is of a point that is not listed")
        if max(configs, default=-1) >= len(self.configs):
            raise ValueError("a measurement or failure is of a configuration that is not listed")
        return self

    def times(self, point: int) -> dict[int, float]:
        """Median microseconds at a point, by configuration index, fastest first."""
        rows = zip(
            self.measurements.point, self.measurements.config, self.measurements.median, strict=True
        )
        found = {config: median for p, config, median in rows if p == point}
        return dict(sorted(found.items(), key=lambda item: item[1]))


def parse_evidence(data: bytes, path: str) -> Evidence:
    """Read an evidence file.

    Raises:
        FormatError: with every fault of the file; a line for broken JSON, else the value's path.
    """
    if len(data) > MAX_BYTES:
        problem = Problem(message=f"an evidence file has at most {MAX_BYTES} bytes", path=path)
        raise FormatError(path, [problem])
    try:
        evidence = Evidence.model_validate_json(data)
    except ValidationError as error:
        raise FormatError(path, [_problem(path, dict(e)) for e in error.errors()]) from None
    if evidence.schema_version != SCHEMA_VERSION:
        message = f"format {evidence.schema_version} is not {SCHEMA_VERSION}, the one known here"
        problem = Problem(message=message, path=path, at="schema_version")
        raise FormatError(path, [problem], hint="upgrade kernelhub")
    return evidence


def render_evidence(evidence: Evidence) -> bytes:
    """Deterministic JSON: a line for each field, and for each point, configuration and failure."""
    fields = evidence.model_dump(mode="json", exclude_defaults=True)
    data = {"schema_version": evidence.schema_version, **fields}
    body = ",\n".join(f"  {json.dumps(name)}: {_value(data[name])}" for name in data)
    return f"{{\n{body}\n}}\n".encode()


def json_schema() -> dict[str, Any]:
    """The JSON Schema of the file."""
    return Evidence.model_json_schema()


def _value(value: Any) -> str:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[\n" + ",\n".join(f"    {_compact(item)}" for item in value) + "\n  ]"
    return _compact(value)


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _problem(path: str, error: dict[str, Any]) -> Problem:
    at = ".".join(str(part) for part in error["loc"]) or None
    position = _LINE.search(error["msg"])
    return Problem(
        message=error["msg"],
        path=path,
        at=at,
        line=int(position[1]) if position else None,
        column=int(position[2]) if position else None,
    )
