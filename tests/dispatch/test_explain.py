"""Overlays, evidence, and the commands that show them."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from kernelhub import cli
from kernelhub.dispatch import overlay
from kernelhub.errors import FormatError, InputError, NotCached, NotFoundError, StoreError
from kernelhub.formats.evidence import parse_evidence
from kernelhub.formats.tree import Categorical, Leaf, Numeric, Split, Tiles, render
from kernelhub.listings import render_listing
from kernelhub.settings import scope
from kernelhub.sources import RemoteFile
from kernelhub.store import Receipt, Store

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
        "policy": {"method": "cuda-graphs", "l2": "warm"},
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


def test_a_rule_on_tiles_is_shown_as_the_tree_has_it(kernel) -> None:
    waves = Numeric((Tiles("n", 128), Tiles("m", 256)), 132)
    tiled = replace(TREE, root=Split(waves, Leaf((0,)), Leaf((1,))))
    path = kernel / "torch-ext/demo/tuning/ops.scale.nvidia-h200.py"
    path.write_text(render(tiled))
    args = ("explain", kernel, "--device", "nvidia-h200", "--set", f"n={128 * 66}", "--set")
    assert "-(-n // 128) * -(-m // 256) <= 132: yes" in run(*args, "m=512")[1]
    assert "-(-n // 128) * -(-m // 256) <= 132: no" in run(*args, "m=513")[1]
    assert "n=<int> m=<int>" in run(*args[:4])[1]


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
        (["--set", "x_dtype=flot16"], InputError, "there is no dtype 'flot16'"),
        (["--variant", "torch-cuda"], NotFoundError, "has no variant torch-cuda"),
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


def test_a_dtype_that_no_tree_tests_goes_its_way_and_the_known_ones_are_named(kernel) -> None:
    args = ("explain", kernel, "--device", "nvidia-h200", "--set", "n=64", "--set", "m=64", "--set")
    _, text = run(*args, "x_dtype=bfloat16")
    assert 'x_dtype in ("float16",): no' in text
    with pytest.raises(InputError) as caught:
        run(*args, "x_dtype=fp16")
    assert caught.value.hint.startswith("measured or told apart were float16; others are bool,")


def test_a_feature_that_is_only_called_like_a_dtype_may_be_anything(tmp_path) -> None:
    folder = tmp_path / "demo/tuning"
    folder.mkdir(parents=True)
    root = Split(Categorical("out_dtype", ("fp16",)), Leaf((0,)), Leaf((0,)))
    own = tree("ops.scale", root, config(64), features={"out_dtype": "str"})
    (folder / "ops.scale.nvidia-h200.py").write_text(render(own))
    _, text = run("explain", tmp_path, "--device", "nvidia-h200", "--set", "out_dtype=fp32")
    assert 'out_dtype in ("fp16",): no' in text


def store(cache: Path, source: Path, commit: str, version: int, *variants: str) -> None:
    """Put variants of a commit into the store, as loading them does."""
    repository = Store(cache, "https://hub.example").repository("org/demo")
    published = ("torch-cuda", "torch-rocm")
    files = [RemoteFile(path=f"build/{v}/metadata.json", size=1, git_sha1="0") for v in published]
    repository.keep_note(commit, "listing.json", render_listing(tuple(files)))
    metadata = {
        "name": "demo", "id": "_demo", "version": version, "license": "MIT", "python-depends": [],
        "backend": {"type": "cuda"}, "digest": {"algorithm": "sha256", "files": {}},
    }  # fmt: skip
    for variant in variants:
        with repository.incoming(commit, variant, 0, shared=False) as staged:
            shutil.copytree(source, staged, dirs_exist_ok=True)
            (staged / "metadata.json").write_text(json.dumps(metadata))
            receipt = Receipt(
                repo_id="org/demo", commit=commit, variant=variant, files={}, size=1,
                installed=float(version),
            )  # fmt: skip
            repository.install(staged, receipt)


def test_versions_and_variants_on_this_machine(tmp_path, kernel) -> None:
    cache = tmp_path / "cache"
    old, new = "a" * 40, "b" * 40
    store(cache, kernel / "torch-ext/demo", old, 1, "torch-cuda", "torch-rocm")
    store(cache, kernel / "torch-ext/demo", new, 2, "torch-cuda")
    device = ("--device", "nvidia-h200")
    with scope(cache=cache, endpoint="https://hub.example"):
        _, text = run("explain", "org/demo", *device)
        note = "variants here: torch-cuda; published and not on this machine: torch-rocm"
        assert note in text
        assert new in text
        for name in ("org/demo==1", "org/demo<2", f"org/demo@{old}"):
            _, text = run("explain", name, *device)
            assert "variants here: torch-cuda, torch-rocm\n" in text
            assert old in text
        _, text = run("explain", "org/demo==1", *device, "--variant", "torch-rocm", "--json")
        (report,) = json.loads(text)
        assert report["variants"] == {"here": ["torch-rocm"], "elsewhere": []}
        assert all("torch-rocm" in tree["path"] for tree in report["trees"])
        with pytest.raises(NotCached, match="torch-rocm of org/demo is not on this machine"):
            run("explain", "org/demo", *device, "--variant", "torch-rocm")
        with pytest.raises(NotFoundError, match="no variant jax-tpu"):
            run("explain", "org/demo", *device, "--variant", "jax-tpu")
        with pytest.raises(NotCached, match="org/demo==3 is not on this machine"):
            run("explain", "org/demo==3", *device)
    with pytest.raises(NotFoundError, match="neither a folder nor a kernel's name"):
        run("explain", "org/demo=1")


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
