"""Helion's own ahead-of-time heuristics, built from our measurements and asked properly.

Helion's generator reads a table of (shape features, configuration, time) and writes a Python file
with a function per kernel. Here the numeric features of each point are given as scalar arguments
(its generator keeps numbers only; a dtype is given as its size in bytes) and each configuration as
a block size that numbers it. The file that it writes is then asked about the held-out points, which
its own `evaluate` cannot do (it looks for a function that no generator writes).

Needs helion 1.5.1 and scikit-learn. Runs code that the generator wrote from our own numbers.
"""

from __future__ import annotations

import csv
import importlib.util
import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kernel_builder.tuning.matrix import Matrix, config_key
from kernelhub.formats.tree import Config, Literal

_FIELDS = ("kernel_name", "shape_hash", "config_hash", "config", "shape_features", "timing_ms")
_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int8": 1, "uint8": 1}
_KERNEL = "subject"


def available() -> bool:
    """Whether helion is installed."""
    return importlib.util.find_spec("helion") is not None


def chooser(
    training: Matrix, backend: str, limit: int, threshold: float
) -> Callable[[Mapping[str, Literal]], Config]:
    """The heuristic that Helion builds from the training points.

    Args:
        backend: "decision_tree" or "nearest_neighbor".
        limit: most configurations.
        threshold: slowdown that it aims at.
    """
    names = sorted({n for p in training.points for n in p.features})
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder, "measurements.csv")
        _write(table, training, names)
        function = _generate(table, Path(folder, "out"), backend, limit, threshold)

    def choose(features: Mapping[str, Literal]) -> Config:
        answer = function(*_arguments(features, names))
        (number,) = dict(answer)["block_sizes"]
        return training.configs[int(number) - 1]

    return choose


def _arguments(features: Mapping[str, Literal], names: list[str]) -> list[float]:
    return [_number(features.get(name)) for name in names]


def _number(value: Literal) -> float:
    if isinstance(value, str):
        return _BYTES.get(value, 0)
    return 0 if value is None else int(value) if float(value).is_integer() else value


def _write(path: Path, matrix: Matrix, names: list[str]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, _FIELDS)
        writer.writeheader()
        for point in matrix.points:
            values = _arguments(point.features, names)
            features = {f"arg{i}_scalar": value for i, value in enumerate(values)}
            for number, config in enumerate(matrix.configs, start=1):
                cell = matrix.cell(point, config)
                if cell is None or cell.ms is None or cell.pruned:
                    continue  # a failure is a missing row there
                writer.writerow(
                    {
                        "kernel_name": _KERNEL,
                        "shape_hash": point.id,
                        "config_hash": config_key(config),
                        "config": json.dumps({"block_sizes": [number]}),
                        "shape_features": json.dumps(features),
                        "timing_ms": cell.ms,
                    }
                )


def _generate(
    table: Path, folder: Path, backend: str, limit: int, threshold: float
) -> Callable[..., Any]:
    import helion._hardware
    from helion.autotuner import heuristic_generator

    # The generator asks for the GPU only to name its output file.
    named = helion._hardware.HardwareInfo("cuda", "NVIDIA H200", "13.0", "sm90")
    helion._hardware.get_hardware_info = lambda device=None: named  # noqa: ARG005
    target = heuristic_generator.PerformanceTarget(
        backend=backend,
        max_configs=limit,
        threshold=threshold,
        verbose=False,
        print_score_matrix=False,
    )
    heuristic_generator.generate_heuristic(table, folder, target=target)
    path = next(folder.glob("heuristic_*.py"))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function: Callable[..., Any] = getattr(module, f"autotune_{_KERNEL}")
    return function
