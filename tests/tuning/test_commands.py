"""`kernel-builder tune` and `evaluate` from outside, as far as they need no GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tuning_samples import context, modelled, write_measurements, write_project

from kernel_builder.cli import group
from kernel_builder.tuning.machine import importing_runner, running
from kernel_builder.tuning.matrix import Cell, Matrix, config_key
from kernel_builder.tuning.tune import project_place
from kernelhub.cli import EXIT_FAILED, EXIT_FAULTS, run
from kernelhub.formats.evidence import parse_evidence
from kernelhub.formats.tree import parse

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def command(capfd: pytest.CaptureFixture[str]) -> Run:
    """Run a command as `main` does: (exit code, stdout and stderr)."""

    def invoke(*args: str) -> tuple[int, str]:
        code = run(group, args)
        captured = capfd.readouterr()
        return code, captured.out + captured.err

    return invoke


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The hash of the toy's tunable, asked once of the process that imports it."""
    project = write_project(tmp_path_factory.mktemp("source") / "toy")
    with running([importing_runner(project_place(project).site)]) as (runner,):
        return runner.sources()["scale"]


@pytest.fixture
def measured(project: Path, source: str) -> Path:
    """The toy project with measurements of its tunable, as if it had been a tiled product."""
    write_measurements(
        project / "tuning/measurements/scale.model-132.jsonl",
        modelled(),
        context(kernel="scale", source=source),
    )
    return project


def tree_of(project: Path) -> Path:
    return project / "torch-ext/toy/tuning/scale.model-132.py"


@pytest.mark.parametrize("learned", [None, False, True])
def test_evidence_says_whether_a_forest_taught_the_tree(
    measured: Path, command: Run, learned: bool | None
) -> None:
    """Evidence of before forests does not; leave-one-shape-out fits as the evidence says."""
    assert command("tune", str(measured), "--phase", "build", "--max-slowdown", "2")[0] == 0
    path = tree_of(measured).with_suffix(".json")
    evidence = json.loads(path.read_text())
    assert evidence["fit"].pop("learned") is False  # of few points
    evidence["fit"] |= {} if learned is None else {"learned": learned}
    path.write_text(json.dumps(evidence))
    code, text = command("evaluate", str(measured))
    assert code == 0, text


def test_build_writes_a_tree_and_its_evidence(measured: Path, command: Run) -> None:
    code, text = command("tune", str(measured), "--phase", "build", "--max-slowdown", "1.2")
    assert code == 0, text
    tree = parse(tree_of(measured).read_text(), "tree.py")
    assert tree.kernel == "scale"
    assert len(tree.configs) <= 8
    evidence = json.loads(tree_of(measured).with_suffix(".json").read_text())
    assert evidence["goal"] == {"max_slowdown": 1.2, "max_configs": 8, "met": True, "misses": []}
    assert evidence["scores"]["held_out"]["points"] == 4
    assert len(evidence["points"]) == 12
    assert len(evidence["points"][0]["cells"]) == 24
    assert parse_evidence(tree_of(measured).with_suffix(".json").read_bytes(), "e").goal.met
    # The same measurements give the same bytes; nobody else's files are touched.
    other = tree_of(measured).with_name("other.model-132.py")
    other.write_text("mine")
    before = {p: p.read_bytes() for p in tree_of(measured).parent.iterdir()}
    assert command("tune", str(measured), "--phase", "build", "--max-slowdown", "1.2")[0] == 0
    assert {p: p.read_bytes() for p in tree_of(measured).parent.iterdir()} == before


def test_a_missed_goal_exits_with_3_says_where_and_writes_nothing(
    measured: Path, command: Run
) -> None:
    args = (
        "tune",
        str(measured),
        "--phase",
        "build",
        "--max-configs",
        "1",
        "--max-slowdown",
        "1.01",
    )
    code, text = command(*args)
    assert code == EXIT_FAULTS
    assert "MISSED held out: mm/M=" in text
    assert "MISSED left out: geometric mean" in text
    assert not tree_of(measured).exists()
    code, _ = command(*args, "--allow-misses")
    assert code == 0
    evidence = json.loads(tree_of(measured).with_suffix(".json").read_text())
    assert evidence["goal"]["met"] is False
    assert evidence["goal"]["misses"]
    # The evaluation of what ships finds the same.
    code, text = command("evaluate", str(measured), "--max-slowdown", "1.01")
    assert code == EXIT_FAULTS
    assert "MISSED" in text


def test_a_tree_built_anew_keeps_its_goal_and_told_misses_are_no_news(
    measured: Path, command: Run
) -> None:
    build = ("tune", str(measured), "--phase", "build")
    asked = ("--max-configs", "1", "--max-slowdown", "1.01")
    assert command(*build, *asked, "--allow-misses")[0] == 0
    files = [tree_of(measured), tree_of(measured).with_suffix(".json")]
    before = [file.read_bytes() for file in files]
    code, text = command(*build)
    assert code == 0, text
    assert "misses that its evidence tells of already" in text
    assert "MISSED" not in text
    assert [file.read_bytes() for file in files] == before
    # A miss that became worse is news, and one that the evidence does not tell of.
    evidence = json.loads(before[1])
    untold, better, *others = evidence["goal"]["misses"]
    evidence["goal"]["misses"] = [{**better, "slowdown": 1.0}, *others]
    files[1].write_text(json.dumps(evidence))
    code, text = command("evaluate", str(measured))
    assert code == EXIT_FAULTS
    assert text.count("MISSED") == 2
    assert f"MISSED {untold['where']}" in text
    assert f"MISSED {better['where']}" in text
    # Where nothing can be read of it, the tree is built by the default goal.
    files[1].write_text("{")
    code, text = command(*build, "--allow-misses")
    assert code == 0, text
    assert json.loads(files[1].read_text())["goal"]["max_slowdown"] == 1.05


def test_evaluate_scores_the_tree_as_it_lies_there(measured: Path, command: Run) -> None:
    assert command("tune", str(measured), "--phase", "build", "--allow-misses")[0] == 0
    code, text = command("evaluate", str(measured), "--max-slowdown", "1.2", "--json")
    assert code == 0, text
    assert json.loads(text)["fitted"]["worst"] < 1.2
    path = tree_of(measured)
    lines = path.read_text().splitlines()
    # Edited by hand: always the last configuration.
    last = len(parse(path.read_text(), "t").configs) - 1
    start = next(i for i, line in enumerate(lines) if line.startswith("def choose"))
    path.write_text("\n".join([*lines[: start + 1], f"    return ({last},)", ""]))
    code, text = command("evaluate", str(measured), "--max-slowdown", "1.2")
    assert code == EXIT_FAULTS
    path.write_text("\n".join([*lines[: start + 1], "    return (__import__('os'),)", ""]))
    code, text = command("evaluate", str(measured))
    assert code == EXIT_FAILED
    assert f":{start + 2}:" in text


def test_a_changed_kernel_needs_new_measurements(measured: Path, command: Run) -> None:
    source = measured / "torch-ext/toy/__init__.py"
    source.write_text(source.read_text().replace("2 * v", "v + v"))
    code, text = command("tune", str(measured), "--phase", "build")
    assert code == EXIT_FAILED
    assert "another source" in text


def test_nothing_measured_no_gpu_and_unknown_kernels_are_said(
    project: Path, command: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernel_builder.tuning.machine.gpu_count", lambda: 0)
    code, text = command("tune", str(project), "--phase", "build")
    assert code == EXIT_FAILED
    assert "holds no measurements" in text
    code, text = command("tune", str(project))
    assert code == EXIT_FAILED
    assert "needs a GPU" in text
    code, text = command(
        "tune", str(project), "--phase", "collect", "--interpret", "--kernel", "scales"
    )
    assert code == EXIT_FAILED
    assert "no workload launches a tunable called scales" in text
    assert "launch scale" in text


def test_without_a_gpu_nothing_is_interpreted_unasked(
    project: Path, command: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernel_builder.tuning.machine.gpu_count", lambda: 0)
    marker = project / "ran"
    workloads = project / "tuning/workloads.py"
    workloads.write_text(f"open({str(marker)!r}, 'w').close()\n{workloads.read_text()}")
    code, text = command("tune", str(project), "--phase", "collect")
    assert code == EXIT_FAILED
    assert "no GPU" in text
    assert "--interpret" in text
    assert not marker.exists()


def test_only_the_device_that_is_named_is_built(measured: Path, command: Run) -> None:
    code, text = command("tune", str(measured), "--phase", "build", "--device", "nvidia-h100")
    assert code == EXIT_FAILED
    assert "holds no measurements on nvidia-h100" in text
    args = ("--device", "model-132", "--kernel", "scale", "--allow-misses")
    assert command("tune", str(measured), "--phase", "build", *args)[0] == 0


def test_collect_lists_the_launches(project: Path, command: Run) -> None:
    code, text = command("tune", str(project), "--phase", "collect", "--interpret", "--json")
    assert code == 0
    rows = [json.loads(line) for line in text.splitlines()]
    assert [row["case"] for row in rows if row["event"] == "launch"] == [
        "lists/n=2",
        "lists/n=3",
        "lists/n=4",
    ]


TRITON_WORKLOADS = """
import torch
from softmax import softmax
from kernel_builder.tuning import Case, workload


@workload(call=softmax, cases=[Case(M=2, N=100)])
def rows(M, N, device):
    return (torch.randn(M, N, device=device, dtype=torch.bfloat16),)
"""


def test_a_package_with_operators_needs_no_build_first(project: Path, command: Run) -> None:
    package = project / "torch-ext/toy/__init__.py"
    package.write_text(
        "from ._ops import add_op_namespace_prefix, ops\n"
        'assert add_op_namespace_prefix("toy").endswith("::toy") and ops is not None\n'
        + package.read_text().replace("from __future__ import annotations\n", "")
    )
    code, text = command("tune", str(project), "--phase", "collect", "--interpret")
    assert code == 0, text
    assert "lists/n=2" in text


def test_launches_of_triton_kernels_are_listed_without_a_gpu(tmp_path: Path, command: Run) -> None:
    pytest.importorskip("triton")
    file = tmp_path / "workloads.py"
    file.write_text(TRITON_WORKLOADS)
    example = Path(__file__).parents[2] / "examples/softmax"
    code, text = command(
        "tune", str(example), "--phase", "collect", "--interpret", "--workloads", str(file)
    )
    assert code == 0, text
    assert "kernels.softmax_forward  rows/M=2 N=100" in text
    assert "default TILE=512" in text


def test_recorded_traffic_is_what_is_tuned_for(project: Path, command: Run, tmp_path: Path) -> None:
    workloads = project / "tuning/workloads.py"
    text = workloads.read_text()
    workloads.write_text(
        text.replace(
            "    cases=[",
            "    launches=lambda launch: {'n': launch.argument('n').value},\n    cases=[",
        )
    )
    script = tmp_path / "application.py"
    script.write_text(
        "import sys, kernelhub\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "import toy\n"
        "from kernelhub.dispatch.finding import find_tunables\n"
        "find_tunables(toy)\n"
        "with kernelhub.record(sys.argv[2]):\n"
        "    for n in (7, 7, 7, 9):\n"
        "        toy.double(list(range(n)))\n"
    )
    record = tmp_path / "launches.jsonl"
    command_line = [sys.executable, script, project / "torch-ext", record]
    subprocess.run(command_line, check=True)
    code, text = command(
        "tune",
        str(project),
        "--phase",
        "collect",
        "--interpret",
        "--from-record",
        str(record),
        "--json",
    )
    assert code == 0, text
    rows = [json.loads(line) for line in text.splitlines()]
    assert [(r["case"], r["weight"]) for r in rows if r["event"] == "launch"] == [
        ("lists/n=7", 3.0),
        ("lists/n=9", 1.0),
    ]


RECORDED = """
import sys
import kernelhub
from kernelhub import interpreter
interpreter.enable()
sys.path.insert(0, sys.argv[1])
import torch, softmax
from kernelhub.dispatch.finding import find_tunables
find_tunables(softmax)
with kernelhub.record(sys.argv[2]):
    for m in (2, 2, 3):
        x = torch.randn(m, 100, dtype=torch.bfloat16, requires_grad=True)
        softmax.softmax(x).sum().backward()
"""


@pytest.mark.slow
def test_softmax_is_tuned_for_recorded_traffic(tmp_path: Path, command: Run) -> None:
    pytest.importorskip("triton")
    example = Path(__file__).parents[2] / "examples/softmax"
    script, record = tmp_path / "application.py", tmp_path / "launches.jsonl"
    script.write_text(RECORDED)
    subprocess.run([sys.executable, script, example / "torch-ext", record], check=True)
    line = ("tune", str(example), "--phase", "collect", "--interpret", "--from-record", str(record))
    code, text = command(*line, "--json")
    assert code == 0, text
    rows = [json.loads(line) for line in text.splitlines()]
    found = {(r["kernel"], r["case"]) for r in rows if r["event"] == "launch"}
    assert found == {
        (f"kernels.softmax_{way}", f"train/M={m} N=100 dtype=bfloat16")
        for way in ("forward", "backward")
        for m in (2, 3)
    }


def test_a_point_on_which_nothing_works_is_a_miss(project: Path, source: str, command: Run) -> None:
    full = modelled()
    dead = full.points[0]
    cells = dict(full.cells)
    for config in full.configs:
        cells[dead.id, config_key(config)] = Cell(reason="out_of_resources")
    matrix = Matrix(kernel="mm", points=full.points, configs=full.configs, cells=cells)
    write_measurements(
        project / "tuning/measurements/scale.model-132.jsonl",
        matrix,
        context(kernel="scale", source=source),
    )
    code, text = command("tune", str(project), "--phase", "build", "--max-slowdown", "1.5")
    assert code == EXIT_FAULTS
    assert f"MISSED fitted: {dead.case}: no configuration works" in text


def test_an_overlay_needs_workloads(command: Run) -> None:
    code, text = command("tune", "org/kernel==1", "--overlay")
    assert code == EXIT_FAILED
    assert "--workloads FILE" in text


def test_help_states_what_the_goal_means() -> None:
    result: Result = CliRunner().invoke(group, ["tune", "--help"])
    assert "neither is the geometric mean" in " ".join(result.output.split())
