"""`kernel-builder tune` on a project for JAX."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from kernel_builder.cli import group
from kernelhub.cli import run

pytest.importorskip("jax")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return Path(shutil.copytree(Path(__file__).parent / "sample", tmp_path / "tiled"))


@pytest.fixture
def invoke(capsys):
    """Run a command in this process: (exit code, output)."""

    def invoke(*args: str) -> tuple[int, str]:
        code = run(group, args)
        captured = capsys.readouterr()
        return code, captured.out + captured.err

    return invoke


def test_launches_are_listed_on_any_machine(project, invoke) -> None:
    code, output = invoke("tune", str(project), "--phase", "collect", "--json")
    assert code == 0, output
    rows = [json.loads(line) for line in output.splitlines()]
    assert [row["case"] for row in rows][-1] == "forward/M=1048576 N=16384"
    assert {row["candidates"] for row in rows} == {10}


def test_measuring_needs_an_accelerator_that_jax_sees(project, invoke) -> None:
    code, output = invoke("tune", str(project))
    assert code != 0
    assert "GPU or TPU that JAX can see" in output
