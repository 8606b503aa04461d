"""Overlays, evidence, and the commands that show them."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from click.testing import CliRunner

from kernelhub import cli
from kernelhub.dispatch import overlay
from kernelhub.errors import FormatError, InputError, NotFoundError, StoreError
from kernelhub.formats.evidence import parse_evidence
from kernelhub.formats.tree import Categorical, Leaf, Numeric, Split, render
from kernelhub.settings import scope

from .helpers import ANY_HASH, H100, H200, config, tree

TREE = tree(
    "ops.scale",
    Split(
        Numeric(("n", "m"), 4096.5),
        Split(Categorical("x_dtype", ("float16",)), Leaf((0, 1)), Leaf((1,))),
        Leaf((1, 0)),
    ),
    config(128),
    config(512, 8),
    features={"n": "int", "m": "int", "x_dtype": "str", "unused": "int"},
)


SCORES = ("fitted", "held_out", "leave_one_shape_out", "single_best")


def evidence(**changes) -> dict:
    score = {"points": 2, "unmeasured": 0, "geomean": 1.0123, "worst": 1.09}
    point = {
        "id": ANY_HASH, "case": "small", "weight": 1.0, "held_out": False,
        "features": {"n": 64, "m": 64, "x_dtype": "float16"}, "choice": 0, "slowdown": 1.0,
        "best_ms": 0.00125,
        "cells": [{"config": 0, "ms": 0.00125, "error": 1e-05, "samples": 9},
                  {"config": 1, "reason": "out_of_resources", "detail": "shared memory"}],
    }  # fmt: skip
    return {
        "schema": 1, "kernel": "ops.scale", "source": ANY_HASH, "device": asdict(H200),
        "tools": {"triton": "3.6.0", "driver": "580.1"},
        "policy": {"method": "cuda-graph", "l2": "warm"},
        "goal": {"max_slowdown": 1.1, "max_configs": 8, "met": True, "misses": []},
        "fit": {"considered": 3, "configs": 2},
        "scores": dict.fromkeys(SCORES, score),
        "configs": [config(128), config(512, 8)], "points": [point], **changes,
    }  # fmt: skip


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    """A kernel's source with a tree for the H200 and one for the H100."""
    folder = tmp_path / "demo" / "torch-ext" / "demo" / "tuning"
    folder.mkdir(parents=True)
    (folder / "ops.scale.nvidia-h200.py").write_text(render(TREE))
    (folder / "ops.scale.nvidia-h200.json").write_text(json.dumps(evidence()))
    other = tree("ops.scale", Leaf((0,)), config(64), features={}, device=H100)
    (folder / "ops.scale.nvidia-h100.py").write_text(render(other))
    return tmp_path / "demo"


def run(*args: object) -> tuple[int, str]:
    result = CliRunner().invoke(cli.group, [str(a) for a in args])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


def test_which_rule_fires_and_what_was_measured(kernel) -> None:
    _, text = run("explain", kernel, "--device", "nvidia-h200", "--set", "n=64", "--set", "m=64",
                  "--set", "x_dtype=float16")  # fmt: skip
    assert "ops.scale on NVIDIA H200" in text
    assert "bundled tree of NVIDIA H200 decides" in text
    assert "n * m <= 4096.5: yes" in text
    assert 'x_dtype in ("float16",): yes' in text
    assert "1. BLOCK=128 num_warps=4" in text
    assert "2. BLOCK=512 num_warps=8" in text
    assert "small in ms: 0.00125, -; best known 0.00125" in text
    assert "held out: 2 points, slowdown geomean 1.012, worst 1.090" in text
    assert "compatible tree of NVIDIA H100 would be asked next" in text


def test_as_json_and_other_values(kernel) -> None:
    _, text = run("explain", kernel, "--json", "--device", "NVIDIA H200", "--set", "n=65",
                  "--set", "m=64", "--set", "x_dtype=float16")  # fmt: skip
    (report,) = json.loads(text)
    first = report["choices"][0]
    assert first["rule"] == [{"test": "n * m <= 4096.5", "holds": False}]
    assert first["ranking"] == [config(512, 8), config(128)]
    assert first["measured"]["points"] == []


def test_without_values_the_questions_are_listed(kernel) -> None:
    _, text = run("explain", kernel, "--device", "nvidia-h200")
    assert "n=<int> m=<int> x_dtype=<str>" in text


@pytest.mark.parametrize(
    ("args", "error", "says"),
    [
        (["--set", "n=64"], InputError, "the tree asks for m"),
        (["--set", "n=many"], InputError, "must be of kind int"),
        (["--set", "k=1"], InputError, "the trees ask for m, n, x_dtype"),
        (["--set", "n=1", "--set", "k=1"], InputError, "told apart by k"),
        (["--set", "n"], InputError, "write NAME=VALUE"),
        (["--kernel", "ops.other"], NotFoundError, "no tree for ops.other"),
    ],
)
def test_questions_that_cannot_be_answered(kernel, args, error, says) -> None:
    with pytest.raises(error, match=says):
        run("explain", kernel, "--device", "nvidia-h200", *args)


def test_kernels_of_a_package_answer_each_for_itself(kernel) -> None:
    """What one kernel's tree still asks for, or has no device for, is said there alone."""
    sums = tree("ops.sum", Leaf((0,)), config(64), features={"n": "int"}, device=H100)
    folder = kernel / "torch-ext/demo/tuning"
    (folder / "ops.sum.nvidia-h100.py").write_text(render(sums))
    square = tree("ops.square", Split(Numeric(("n",), 9.5), Leaf((0,)), Leaf((0,))), config(32),
                  features={"n": "int"})  # fmt: skip
    (folder / "ops.square.nvidia-h200.py").write_text(render(square))
    _, text = run("explain", kernel, "--device", "nvidia-h200", "--set", "n=64")
    assert "not answered: ops.scale: the tree asks for m" in text
    assert "n <= 9.5: no" in text
    code, text = run("explain", kernel, "--device", "nvidia-h200", "--set", "n=64", "--json")
    assert code == 0
    by_kernel = {report["kernel"]: report for report in json.loads(text)}
    assert "asks for m" in by_kernel["ops.scale"]["missing"]
    assert by_kernel["ops.square"]["missing"] is None


def test_an_unknown_device_and_an_unknown_place(kernel, tmp_path) -> None:
    with pytest.raises(InputError, match="nvidia-h100, nvidia-h200"):
        run("explain", kernel, "--device", "nvidia-l4")
    with pytest.raises(NotFoundError):
        run("explain", tmp_path / "nowhere")
    (kernel / "torch-ext/demo/tuning/ops.scale.nvidia-h200.py").write_text("import os\n")
    with pytest.raises(FormatError, match=r"nvidia-h200\.py:1"):
        run("explain", kernel, "--device", "nvidia-h100")


def test_overlays_are_kept_shown_and_removed(tmp_path, kernel) -> None:
    folder = tmp_path / "mine"
    with scope(overlays=folder, local_kernels={"demo/scale": kernel}):
        assert run("overlay", "list")[1].startswith("no overlays")
        overlay.save(folder, "demo/scale", TREE, json.dumps(evidence()).encode())
        overlay.save(folder, "demo/scale", TREE)  # again: replaced, not doubled
        _, text = run("overlay", "list", "--json")
        (row,) = json.loads(text)
        assert (row["repo_id"], row["kernel"], row["device"]) == (
            "demo/scale", "ops.scale", "nvidia-h200",
        )  # fmt: skip
        values = ["--set", "n=1", "--set", "m=1", "--set", "x_dtype=float32"]
        _, text = run("explain", "demo/scale", "--device", "nvidia-h200", *values)
        assert "overlay tree of NVIDIA H200 decides" in text
        with pytest.raises(NotFoundError):
            run("overlay", "remove", "demo/scale", "--device", "nvidia-h100")
        _, text = run("overlay", "remove", "demo/scale")
        assert "removed" in text
    assert [path for path in folder.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("repo_id", ["scale", "a/b/c", "../x", "a/..", "a/", "a\\b/c"])
def test_ids_do_not_lead_out_of_the_folder(tmp_path, repo_id) -> None:
    with pytest.raises(InputError):
        overlay.save(tmp_path, repo_id, TREE)


def test_an_overlay_that_cannot_be_written_leaves_the_old_one(tmp_path) -> None:
    (tmp_path / "demo").write_text("a file where a folder must be")
    with pytest.raises(StoreError):
        overlay.save(tmp_path, "demo/scale", TREE)


def test_evidence_is_read() -> None:
    found = parse_evidence(json.dumps(evidence(more="of a later version")).encode(), "e.json")
    assert found.device.facts() == H200
    assert found.points[0].times() == {0: 0.00125}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"schema": 2}, "format 2 is not 1"),
        ({"schema": "1"}, "schema"),
        ({"points": [{}]}, r"points\.0\.id"),
        ({"configs": []}, "not listed"),
        ({"goal": {"max_slowdown": 0.5, "max_configs": 8, "met": True}}, r"goal\.max_slowdown"),
        ({"device": {**asdict(H200), "memory": -1}}, r"device\.memory"),
    ],
)
def test_bad_evidence_is_refused(change, says) -> None:
    with pytest.raises(FormatError, match=says):
        parse_evidence(json.dumps(evidence(**change)).encode(), "e.json")


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[" * 100_000, b'{"schema": 1e999}', b"\xff", b'{"a": NaN}', b"null"]
)
def test_broken_evidence_is_refused(data) -> None:
    with pytest.raises(FormatError):
        parse_evidence(data, "e.json")


def test_truncated_evidence_names_the_line() -> None:
    text = json.dumps(evidence(), indent=1)
    with pytest.raises(FormatError) as caught:
        parse_evidence(text[: len(text) // 2].encode(), "e.json")
    assert caught.value.problems[0].line > 10
