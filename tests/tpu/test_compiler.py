"""libtpu's compiler as a runner: a tree for a TPU that is not there. Needs libtpu, no device."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from kernel_builder.cli import group
from kernelhub.cli import group as hub_group
from kernelhub.cli import run
from kernelhub.formats.evidence import parse_evidence
from kernelhub.formats.tree import parse

pytest.importorskip("jax")
libtpu = pytest.importorskip("libtpu", reason="the compiler for TPUs is not installed")


@pytest.fixture
def invoke(capsys):
    """Run a command in this process: (exit code, output)."""

    def invoke(*args: str, commands=group) -> tuple[int, str]:
        code = run(commands, args)
        captured = capsys.readouterr()
        return code, captured.out + captured.err

    return invoke


def asked(tree) -> dict[str, object]:
    """A value for each feature that the tree may test."""
    return {name: {"int": 64, "str": "float32"}[kind] for name, kind in tree.features.items()}


@pytest.mark.timeout(600)
def test_a_tree_for_a_chip_that_is_not_there(tmp_path, invoke) -> None:
    chip, slug = "7x", "tpu7x"
    project = Path(shutil.copytree(Path(__file__).parent / "sample", tmp_path / "tiled"))
    code, output = invoke("tune", str(project), "--chip", chip, "--json", "--allow-misses",
                          "--finalists", "1")  # fmt: skip
    assert code == 0, output
    folder = project / "jax-ext/tiled/tuning"
    tree = parse((folder / f"tiled.{slug}.py").read_text(), "tree")
    evidence = parse_evidence((folder / f"tiled.{slug}.json").read_bytes(), "evidence")
    assert evidence.modelled
    assert tree.tools["libtpu"]
    cells = {
        (point.case, evidence.configs[cell.config]["block_m"]): cell
        for point in evidence.points
        for cell in point.cells
    }
    right = [cell for (_, _), cell in cells.items() if cell.reason is None]
    assert right
    assert all(cell.ms > 0 for cell in right)
    # Of a row of 16384 floats a chip holds some hundreds, of a row of 256 all 64 of them.
    assert {case for case, _ in cells} >= {"forward/M=64 N=256", "forward/M=1048576 N=16384"}
    refused = [cell for cell in cells.values() if cell.reason is not None]
    assert {cell.reason for cell in refused} <= {"out_of_resources"}
    rows = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    (effort,) = [row for row in rows if row["event"] == "effort"]
    assert effort["compiled_here"] > 0
    values = [f"--set={name}={tree_value}" for name, tree_value in asked(tree).items()]
    code, output = invoke("explain", str(project), "--device", slug, *values, commands=hub_group)
    assert code == 0, output
    assert "compiled and modelled, not timed" in output


_HUGE = """
import jax.numpy as jnp
from tiled import scale

from kernel_builder.tuning import Case, workload


@workload(call=scale, cases=[Case(M=1 << 17, N=2048)])
def huge(M, N, device):
    return jnp.ones((M, N), jnp.float32), jnp.ones((N,), jnp.float32)
"""


@pytest.mark.timeout(600)
def test_a_refusal_of_the_launch_itself_is_no_failure_of_a_tree(tmp_path, invoke) -> None:
    """Dispatch takes the next in rank for it, and cannot for what only the compiler refuses."""
    project = Path(shutil.copytree(Path(__file__).parent / "sample", tmp_path / "tiled"))
    workloads = tmp_path / "huge.py"
    workloads.write_text(_HUGE)
    code, output = invoke("tune", str(project), "--chip", "v4", "--workloads", str(workloads),
                          "--allow-misses")  # fmt: skip
    assert code == 0, output
    evidence = parse_evidence(
        (project / "jax-ext/tiled/tuning/tiled.tpu-v4.json").read_bytes(), "evidence"
    )
    (point,) = evidence.points
    cells = {
        evidence.configs[cell.config]["block_m"]: cell
        for cell in point.cells
        if not evidence.configs[cell.config]["wrong"]
    }
    assert {block: cell.pruned for block, cell in cells.items()} == {
        32: False, 64: False, 256: False, 1024: False, 65536: True,
    }  # fmt: skip
    assert {block for block, cell in cells.items() if cell.ms is None} == {1024, 65536}
    assert {cells[block].reason for block in (1024, 65536)} == {"out_of_resources"}
    assert "does not fit" in cells[65536].detail


def test_an_unknown_chip_is_refused(tmp_path, invoke) -> None:
    project = shutil.copytree(Path(__file__).parent / "sample", tmp_path / "tiled")
    code, output = invoke("tune", str(project), "--chip", "v99")
    assert code != 0
    assert "v4, v5e, v5p, v6e, 7x" in output
    code, output = invoke("tune", str(project), "--runner", "compiler")
    assert code != 0
    assert "--chip" in output
