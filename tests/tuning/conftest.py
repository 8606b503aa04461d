"""Fixtures of the tuning tests; what they are made of is in `tuning_samples`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from kernel_builder.tuning.engine import Engine
from kernel_builder.tuning.log_writer import Writer
from kernel_builder.tuning.matrix import Matrix, Point
from kernel_builder.tuning.plan import Assignment, MeasureOptions, Progress
from kernel_builder.tuning.runners.process import ProcessRunner, Timeouts

sys.path.insert(0, str(Path(__file__).parent))

from tuning_samples import (
    configs,
    context,
    points,
    write_project,
)

Measure = Callable[..., tuple[Progress, Matrix]]


@pytest.fixture
def measure() -> Iterator[Measure]:
    """Run the engine on modelled devices into a file; runners are closed after the test."""
    runners: list[ProcessRunner] = []

    def run(
        path: Path,
        *,
        troubles: Sequence[dict[str, Any]] = (),
        workers: int = 1,
        timeouts: Timeouts | None = None,
        options: MeasureOptions | None = None,
        admitted: Callable[[Point], list[dict[str, Any]]] = lambda _: configs(),
    ) -> tuple[Progress, Matrix]:
        mine = [
            ProcessRunner("model", {"troubles": list(troubles)}, timeouts=timeouts)
            for _ in range(workers)
        ]
        runners.extend(mine)
        station = mine[0].station
        where = context(tools=station.tools, policy=station.policy)
        writer = Writer(path)
        with writer.open():
            assignment = Assignment(
                context=where,
                writer=writer,
                points=points(),
                candidates={p.id: admitted(p) for p in points()},
            )
            progress = Engine([assignment], mine, options or MeasureOptions()).run()
        return progress, writer.measurements.matrix(where)

    yield run
    for runner in runners:
        runner.close()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with a pure-Python tunable, `toy`, and workloads for it."""
    return write_project(tmp_path / "toy")
