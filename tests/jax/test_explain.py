"""`kernelhub explain` for TPUs that are not here, with and without trees of their own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from kernelhub.cli_explain import command
from kernelhub.formats.tpu import chip_of_name
from kernelhub.formats.tree import Leaf, Numeric, Split, Tree, render


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A package with a tree for v5e, whose choices may take all of its 128 MiB of VMEM."""
    chip = chip_of_name("v5e")
    assert chip is not None
    tree = Tree(
        kernel="matmul.product",
        device=chip.facts,
        tools={"jax": "0.11.2"},
        source_hash="sha256:" + "0" * 64,
        features={"x_dim0": "int"},
        configs=({"block": 128}, {"block": 512}),
        root=Split(Numeric(("x_dim0",), 256), Leaf((0,)), Leaf((1, 0))),
    )
    (tmp_path / "tuning").mkdir()
    (tmp_path / "tuning" / "matmul.product.tpu-v5e.py").write_text(render(tree))
    return tmp_path


def explain(folder: Path, device: str, *more: str) -> str:
    done = CliRunner().invoke(command, [str(folder), "--device", device, *more])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize("device", ["tpu-v5e", "TPU v5e", "v5e"])
def test_its_own_tree(folder: Path, device: str) -> None:
    text = explain(folder, device, "--set", "x_dim0=1000")
    assert "bundled tree of TPU v5e decides" in text
    assert "1. block=512" in text


def test_an_older_generations_tree(folder: Path) -> None:
    text = explain(folder, "tpu-v6e", "--set", "x_dim0=100")
    assert text.startswith("matmul.product on TPU v6e\n")
    assert "compatible tree of TPU v5e decides" in text
    assert "1. block=128" in text


@pytest.mark.parametrize("device", ["tpu-7x", "tpu-v4"])
def test_none_that_fits(folder: Path, device: str) -> None:
    """7x is newer and has less VMEM; v4 is older."""
    text = explain(folder, device, "--set", "x_dim0=100")
    assert "no tree is for this device or fits it: the author's default decides" in text
    (report,) = json.loads(explain(folder, device, "--json"))
    assert report["default"]
    assert not report["choices"]
