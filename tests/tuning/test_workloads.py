"""Workload files: what they declare, and what is said when they are at fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_builder.tuning import Case, Sizes, drawn
from kernel_builder.tuning.runners.process import ProcessRunner
from kernel_builder.tuning.tune import project_place
from kernel_builder.tuning.workloads import from_record, load_workloads
from kernelhub.dispatch.launch import Launch, ScalarFact
from kernelhub.errors import FormatError, InputError, KernelHubError, TuningError

HEAD = "from kernel_builder.tuning import Case, workload\n"


def load(tmp_path: Path, text: str) -> object:
    path = tmp_path / "workloads.py"
    path.write_text(HEAD + text)
    return load_workloads(path)


def test_a_case_is_named_by_its_parameters() -> None:
    assert Case(M=4, dtype="float16", weight=2).name == "M=4 dtype=float16"
    assert Case("decode", M=1).name == "decode"


def test_no_file_is_an_error_that_says_how_to_write_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no workload file"):
        load_workloads(tmp_path / "workloads.py")


def test_every_fault_of_the_cases_is_told_at_once(tmp_path: Path) -> None:
    text = """
@workload(call=print, tolerance=0, cases=[Case("a"), Case("a"), Case("b", weight=-1)])
def one(device): ...
"""
    with pytest.raises(FormatError) as caught:
        load(tmp_path, text)
    assert [p.message for p in caught.value.problems] == [
        "workload one: tolerance must be a positive number",
        "case one/a is there twice; give each a name of its own",
        "case one/b: weight must be a positive number",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "defines no workload"),
        ("@workload(call=print, cases=[])\ndef one(device): ...", "defines no workload"),
        ("@workload(call=print, cases=[Case('a', held_out=True)])\ndef one(d): ...", "held out"),
        ("1 / 0", "raised ZeroDivisionError"),
        ("def f(:", "raised SyntaxError"),
    ],
)
def test_files_at_fault(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(KernelHubError, match=message):
        load(tmp_path, text)


def change(project: Path, old: str, new: str) -> None:
    path = project / "tuning/workloads.py"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def collect(project: Path) -> list[object]:
    site = project_place(project).site
    runner = ProcessRunner("device", {"site": site.to_json(), "index": None})
    try:
        return list(runner.collect())
    finally:
        runner.close()


def test_every_launch_is_found_with_its_weight_and_candidates(project: Path) -> None:
    found = collect(project)
    assert [(f.kernel, f.case, f.weight, f.held_out) for f in found] == [  # type: ignore[attr-defined]
        ("scale", "lists/n=2", 3.0, False),
        ("scale", "lists/n=3", 1.0, False),
        ("scale", "lists/n=4", 1.0, True),
    ]
    assert found[0].candidates == [{"block": 1}, {"block": 2}, {"block": 4}]  # type: ignore[attr-defined]
    assert found[0].features["n"] == 2  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("call=double", "call=len", "case lists/n=2 launches no tunable"),
        ("call=double", "call=lambda v: 1 / 0", "case lists/n=2 raised ZeroDivisionError"),
        ("return (list(range(n)),)", "return 1 / 0", "case lists/n=2: making inputs raised"),
        ("return (list(range(n)),)", "return n", "not a tuple of arguments"),
        ("from toy import double", "from toy import triple", "raised ImportError"),
        ("call=double", "call=lambda v: __import__('os')._exit(3)", "exit code 3"),
    ],
)
def test_a_workload_at_fault_is_named(project: Path, old: str, new: str, message: str) -> None:
    change(project, old, new)
    with pytest.raises(TuningError, match=message):
        collect(project)


def test_a_package_that_does_not_import_is_an_error(project: Path) -> None:
    (project / "torch-ext/toy/__init__.py").write_text("import no_such_module")
    with pytest.raises(KernelHubError, match="no_such_module"):
        collect(project)


def launch(kernel: str, n: int) -> Launch:
    return Launch(kernel=kernel, arguments=(("n", ScalarFact(value=n)),))


def test_recorded_launches_become_cases_weighted_by_their_count(tmp_path: Path) -> None:
    text = """
@workload(call=print, cases=[Case(n=1)],
          launches=lambda launch: {"n": launch.argument("n").value}
          if launch.kernel == "scale" else None)
def lists(n, device): ...
"""
    workloads = load(tmp_path, text)
    cases = from_record(workloads, [(launch("scale", 5), 7), (launch("scale", 6), 2)])  # type: ignore[arg-type]
    assert [(name, case.weight, case.parameters) for name, _, case in cases] == [
        ("lists/n=5", 7.0, {"n": 5}),
        ("lists/n=6", 2.0, {"n": 6}),
    ]
    with pytest.raises(TuningError, match="launches of other that no workload can make"):
        from_record(workloads, [(launch("other", 1), 1)])  # type: ignore[arg-type]


def test_drawn_cases_are_distinct_in_range_and_the_same_again() -> None:
    def draw() -> list[Case]:
        return drawn(
            60,
            M=Sizes(3, 5000),
            N=Sizes(100, 4000, multiple=64),
            dtype=["bfloat16", "bfloat16", "float32"],
            keep=lambda M, N, dtype: M * N <= 1_000_000,
        )

    cases = draw()
    assert [c.name for c in cases] == [c.name for c in draw()]
    assert len({c.name for c in cases}) == 60
    assert sum(c.held_out for c in cases) == 20
    for m, n in ((c.parameters["M"], c.parameters["N"]) for c in cases):
        assert 3 <= m <= 5000
        assert 128 <= n <= 3968
        assert n % 64 == 0
        assert m * n <= 1_000_000
    # Each factor of two is as likely as another, among the fitted and among those held out.
    for held_out in (False, True):
        small = [c for c in cases if c.held_out == held_out and c.parameters["M"] < 128]
        assert 0.4 < len(small) / (20 if held_out else 40) < 0.8
    assert {c.parameters["dtype"] for c in cases if c.held_out} == {"bfloat16", "float32"}


def test_more_cases_than_there_are_cannot_be_drawn() -> None:
    with pytest.raises(InputError, match="only 3 of 4 cases"):
        drawn(4, M=Sizes(1, 3))
    with pytest.raises(InputError, match="holds no size"):
        Sizes(65, 127, multiple=64)
