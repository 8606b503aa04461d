"""`kernel-builder check` from the shell: text, JSON, exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernel_builder.cli import group
from kernelhub.cli import run

from .sample import project


def check(*args: str | Path) -> int:
    return run(group, ["check", *map(str, args), "--no-compile"])


def test_a_sound_project(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(project(tmp_path / "p")) == 0
    assert capsys.readouterr().out == "no faults\n"


def test_faults_exit_3_with_place_code_and_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = project(tmp_path / "p", {"a.py": "import einops\nimport scale_it.kernels as k\n"})
    assert check(root) == 3
    out = capsys.readouterr().out
    assert "torch-ext/scale_it/a.py:1:1: imports einops, which build.toml does not declare" in out
    assert "[absolute-import]" in out
    assert out.endswith("2 faults\n")
    assert check(root / "build.toml", "--fix") == 3
    out = capsys.readouterr().out
    assert out.startswith("torch-ext/scale_it/a.py: rewritten\n")
    assert out.endswith("1 fault\n")


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(project(tmp_path / "p", {"a.py": "import einops\n"}), "--json") == 3
    data = json.loads(capsys.readouterr().out)
    assert data["ok"] is False
    assert data["fixed"] == data["notes"] == []
    (fault,) = data["faults"]
    assert (fault["code"], fault["line"], fault["column"]) == ("undeclared-import", 1, 1)
    assert "general.dependencies" in fault["hint"]


def test_json_where_there_is_no_project(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(tmp_path / "none", "--json") == 1
    out, err = capsys.readouterr()
    data = json.loads(out)
    assert data["ok"] is False
    assert "none" in data["error"]["message"]
    assert data["faults"] == data["notes"] == data["fixed"] == []
    assert err.startswith("error: ")


def test_no_project(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(tmp_path / "none") == 1
    assert "error:" in capsys.readouterr().err
