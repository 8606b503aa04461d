"""The evidence of a tree: everything that was measured, how, and how well the tree does.

It lies beside the tree (`tuning/<kernel>.<device>.json`) so that anybody can check a choice, fit
again, or compare with measurements of their own. `kernel-builder tune` writes it; what reads it
(`kernelhub explain`, `kernel-builder check`, cards) goes through `parse_evidence`.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from kernelhub.errors import FormatError, Problem

from .tree import DeviceFacts

SCHEMA = 1
MODELLED = "compiled-and-modelled"
"""A policy's method: a compiler said what runs, a model how long it takes; nothing was timed."""

MAX_BYTES = 64 * 1024 * 1024

Value = bool | int | float | str | None
Index = Annotated[int, Field(ge=0)]
Milliseconds = Annotated[float, Field(gt=0, lt=1e9)]
Ratio = Annotated[float, Field(ge=0, lt=1e9)]
_LINE = re.compile(r"line (\d+) column (\d+)")


class _Model(BaseModel):
    # Received files may hold keys of later minor versions; infinities are no measurement.
    model_config = ConfigDict(
        frozen=True, extra="ignore", allow_inf_nan=False, strict=True, use_attribute_docstrings=True
    )


class Device(_Model):
    """The device, as in the tree. Sizes in bytes."""

    name: str
    """The vendor's name."""
    arch: str
    """The compiler's name: "sm_90", "gfx942"."""
    sm_count: Index
    """Streaming multiprocessors, or compute units."""
    memory: Index
    """Bytes of device memory."""
    shared_memory: Index
    """Bytes of shared memory that one block may ask for."""

    def facts(self) -> DeviceFacts:
        """As the rest of the house speaks of it."""
        return DeviceFacts(**self.model_dump())


class Cell(_Model):
    """One configuration at one point: a time, or why there is none."""

    config: Index
    """Index into `configs`."""
    ms: Milliseconds | None = None
    """Device time of one launch, in milliseconds: the lowest sample; the median where the
    policy's method is "cuda-graph" or "jax-chain"."""
    error: Annotated[float, Field(ge=0)] = 0.0
    """By how much it may be off, in milliseconds: how far the second lowest sample is above it, or
    the standard error of the median."""
    samples: Index = 0
    """How many samples stand behind it."""
    reason: str | None = None
    """Why there is no time: "out_of_resources", "wrong_result", ..."""
    detail: str = ""
    """The failing tool's own words, shortened."""
    pruned: bool = False
    """Whether dispatch passes this configuration over here, since the author's pruning drops it or
    the launch itself refuses it; then it is no candidate."""

    @model_validator(mode="after")
    def _one_of_both(self) -> Cell:
        if (self.ms is None) == (self.reason is None):
            raise ValueError("a cell has either a time or a reason")
        return self


class Point(_Model):
    """One distinct launch that was measured."""

    id: str
    """Content hash of the launch."""
    case: str = ""
    """The workload's case that makes this launch."""
    weight: Annotated[float, Field(gt=0)] = 1.0
    """How much it counts."""
    held_out: bool = False
    """Whether it is kept away from fitting."""
    features: dict[str, Value]
    """What trees may test, by name."""
    choice: Index
    """Index of the configuration that the tree chooses here."""
    slowdown: Ratio | None = None
    """The choice's time over the best known one; null if the choice has no time."""
    best_ms: Milliseconds | None = None
    """The best known time, in milliseconds."""
    cells: list[Cell]
    """What was found for each configuration that was tried."""

    def times(self) -> dict[int, float]:
        """Milliseconds by configuration index, fastest first, of those that are candidates."""
        found = {c.config: c.ms for c in self.cells if c.ms is not None and not c.pruned}
        return dict(sorted(found.items(), key=lambda item: item[1]))


class Miss(_Model):
    """One way in which the tree misses its goal."""

    where: str
    """On which points: fitted, held out or left out."""
    text: str
    """What is missed and by how much."""
    slowdown: Ratio | None = None
    """The slowdown, where there is a number."""


class Goal(_Model):
    """What was asked for. `misses` is empty if it is met."""

    max_slowdown: Annotated[float, Field(ge=1)]
    """The most that the tree may be slower than the best known."""
    max_configs: Annotated[int, Field(ge=1)]
    """The most configurations that it may use."""
    met: bool
    """Whether the goal is met."""
    misses: list[Miss] = []
    """How it is missed; empty if it is met."""


class Score(_Model):
    """Slowdown against the best known, over some points; 1 is as good as the best.

    `unmeasured` points are those at which the choice has no time; they count as missed.
    """

    points: Index
    """Number of points."""
    unmeasured: Index = 0
    """Points at which the choice has no time; they count as missed."""
    geomean: Ratio | None = None
    """Geometric mean of the slowdowns."""
    worst: Ratio | None = None
    """The worst slowdown."""


class Scores(_Model):
    """How good the tree is."""

    fitted: Score
    """On the points that the tree was fitted to."""
    held_out: Score
    """On the points that it was not."""
    leave_one_shape_out: Score
    """Each point by a tree that has not seen it."""
    single_best: Score
    """The one configuration that is best for all points together, for comparison."""


class Evidence(_Model):
    """The file."""

    schema_version: Annotated[int, Field(ge=1, alias="schema")]
    """Major version of this format."""
    kernel: str
    """Dotted name below the package."""
    source: str
    """Hash of the source that was measured."""
    device: Device
    """What was measured on."""
    tools: dict[str, str]
    """Versions, the driver's among them."""
    policy: dict[str, Value]
    """How was measured, such as {"method": "cuda-graphs", "l2": "warm"}.

    Times of different policies are never compared.
    """
    goal: Goal
    """What was asked for."""
    fit: dict[str, Value]
    """What the fitting settled on."""
    scores: Scores
    """The tree against the best known, on different sets of points."""
    configs: list[dict[str, Value]]
    """Every configuration that was tried."""
    points: list[Point]
    """Every launch that was measured."""

    @property
    def modelled(self) -> bool:
        """Whether the times are those of a model, not measured."""
        return self.policy.get("method") == MODELLED

    @model_validator(mode="after")
    def _indices_exist(self) -> Evidence:
        used = [cell.config for point in self.points for cell in point.cells]
        if max([*used, *(point.choice for point in self.points)], default=-1) >= len(self.configs):
            raise ValueError("a point names a configuration that is not listed")
        return self


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
    if evidence.schema_version != SCHEMA:
        message = f"format {evidence.schema_version} is not {SCHEMA}, the one known here"
        problem = Problem(message=message, path=path, at="schema")
        raise FormatError(path, [problem], hint="upgrade kernelhub")
    return evidence


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
