"""The evidence beside a tree: what was measured, how, and how well the tree does. JSON, one line
for each point, so that it can be diffed."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any

from kernel_builder.tuning.build import Report
from kernel_builder.tuning.evaluate import Score, Scores
from kernel_builder.tuning.fit import FitOptions
from kernel_builder.tuning.matrix import Matrix, Point, config_key

SCHEMA = 1


def render_evidence(report: Report, options: FitOptions) -> bytes:
    """The evidence file of a tree. The same report gives the same bytes."""
    head = _head(report, options)
    numbers = {config_key(c): i for i, c in enumerate(report.matrix.configs)}
    chosen = {s.point.id: s for s in (*report.fitted.scores, *report.held_out.scores)}
    points = [
        _point(report.matrix, point, chosen[point.id], numbers) for point in report.matrix.points
    ]
    lines = [f" {json.dumps(name)}: {_text(value)}" for name, value in head.items()]
    lines.append(_list("configs", [dict(c) for c in report.matrix.configs]))
    lines.append(_list("points", points))
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


def _head(report: Report, options: FitOptions) -> dict[str, Any]:
    context = report.context.to_json()
    return {
        "schema": SCHEMA,
        **context,
        "goal": {
            "max_slowdown": options.max_slowdown,
            "max_configs": options.max_configs,
            "met": not report.misses,
            "misses": [_plain(asdict(miss)) for miss in report.misses],
        },
        "fit": {"considered": report.considered, **asdict(report.complexity)},
        "scores": {
            "fitted": summary(report.fitted),
            "held_out": summary(report.held_out),
            "leave_one_shape_out": summary(report.left_out),
            "single_best": summary(report.single),
        },
    }


def summary(scores: Scores) -> dict[str, Any]:
    """Number of points, geometric mean and worst slowdown; null where there is none."""
    return _plain(
        {
            "points": len(scores.scores),
            "unmeasured": len(scores.unmeasured),
            "geomean": scores.geomean,
            "worst": scores.worst,
        }
    )


def _point(matrix: Matrix, point: Point, score: Score, numbers: dict[str, int]) -> dict[str, Any]:
    cells = []
    for config in matrix.configs:
        cell = matrix.cell(point, config)
        if cell is None:
            continue
        entry: dict[str, Any] = {"config": numbers[config_key(config)]}
        if cell.ms is None:
            entry |= {"reason": cell.reason, "detail": cell.detail[:120]}
        else:
            entry |= {"ms": _short(cell.ms), "error": _short(cell.error), "samples": cell.samples}
        cells.append(entry | ({"pruned": True} if cell.pruned else {}))
    return _plain(
        {
            "id": point.id,
            "case": point.case,
            "weight": point.weight,
            "held_out": point.held_out,
            "features": dict(point.features),
            "choice": numbers[config_key(score.config)],
            "slowdown": score.slowdown,
            "best_ms": matrix.best(point),
            "cells": cells,
        }
    )


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """JSON has neither infinities nor NaN."""
    return {
        name: (_short(v) if math.isfinite(v) else None) if isinstance(v, float) else v
        for name, v in values.items()
    }


def _short(value: float) -> float:
    return float(f"{value:.6g}")


def _list(name: str, items: list[dict[str, Any]]) -> str:
    rows = ",\n".join(f"  {_text(item)}" for item in items)
    return f" {json.dumps(name)}: [\n{rows}\n ]"


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=False)
