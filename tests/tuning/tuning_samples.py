"""Matrices, measurement files and a project to tune, made without a GPU."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernel_builder.tuning.log import Context
from kernel_builder.tuning.matrix import Cell, Matrix, Point, config_key
from kernel_builder.tuning.runners.model import DEVICE, model_ms

SHAPES = tuple(itertools.product((16, 512, 8192), (512, 8192), (512, 4096)))
SOURCE = "sha256:" + "0" * 64


def configs() -> list[dict[str, Any]]:
    """24 configurations of a tiled product."""
    return [
        {"BM": bm, "BN": bn, "num_warps": warps, "num_stages": stages}
        for bm, bn, warps, stages in itertools.product((32, 64, 128), (64, 128), (4, 8), (2, 3))
    ]


def points(shapes: Sequence[tuple[int, int, int]] = SHAPES) -> tuple[Point, ...]:
    """A point for each (M, N, K); every third is held out."""
    return tuple(
        Point(
            id=f"{m}-{n}-{k}",
            features={"M": m, "N": n, "K": k, "x_dtype": "float16"},
            held_out=index % 3 == 2,
            case=f"mm/M={m} N={n} K={k}",
        )
        for index, (m, n, k) in enumerate(shapes)
    )


def modelled(
    shapes: Sequence[tuple[int, int, int]] = SHAPES, noise: float = 0.005, seed: int = 0
) -> Matrix:
    """Every configuration on every shape by the cost model, with noise."""
    noisy = random.Random(seed)
    cells = {
        (point.id, config_key(config)): Cell(
            ms=model_ms(point.features, config) * noisy.lognormvariate(0, noise),
            error=noise / 4 * model_ms(point.features, config),
            samples=20,
        )
        for point in points(shapes)
        for config in configs()
    }
    return Matrix(kernel="mm", points=points(shapes), configs=tuple(configs()), cells=cells)


def context(**changes: Any) -> Context:
    """A context of the modelled device."""
    facts: dict[str, Any] = {
        "kernel": "kernels.mm",
        "source": SOURCE,
        "device": DEVICE,
        "tools": {"model": "1"},
        "policy": {"method": "model", "l2": "warm"},
    }
    return Context(**{**facts, **changes})


PROJECT = """
[general]
name = "toy"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cpu"]

[torch-noarch]
"""
PACKAGE = '''
"""A package with one tunable and nothing to install."""
from kernelhub import tunable


@tunable(configs=[{"block": 1}, {"block": 2}, {"block": 4}], key=["n"])
def scale(values, n, *, block):
    """Doubles every value."""
    return [2 * v for v in values]


def double(values):
    return scale(values, len(values))
'''
WORKLOADS = """
from toy import double
from kernel_builder.tuning import Case, workload


@workload(
    call=double,
    reference=lambda values: [2 * v for v in values],
    cases=[Case(n=2, weight=3), Case(n=3), Case(n=4, held_out=True)],
)
def lists(n, device):
    return (list(range(n)),)
"""


def write_project(root: Path) -> Path:
    """A project with a pure-Python tunable, `toy`, and workloads for it; gives its folder."""
    (root / "torch-ext/toy").mkdir(parents=True)
    (root / "tuning").mkdir()
    (root / "build.toml").write_text(PROJECT)
    (root / "torch-ext/toy/__init__.py").write_text(PACKAGE)
    (root / "tuning/workloads.py").write_text(WORKLOADS)
    return root


def write_measurements(path: Path, matrix: Matrix, where: Context) -> None:
    """A measurement file that holds a matrix, written line by line as the format says."""
    lines: list[dict[str, Any]] = [{"context": where.id, **where.to_json()}]
    for point in matrix.points:
        lines.append(
            {"point": point.id, "features": dict(point.features), "weight": point.weight,
             "held_out": point.held_out, "case": point.case}
        )  # fmt: skip
        for config in matrix.configs:
            cell = matrix.cell(point, config)
            if cell is not None:
                found = {"samples": [cell.ms] * 8} if cell.ms else {"reason": cell.reason}
                lines.append({"result": [where.id, point.id], "config": dict(config), **found})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
