"""The commands that look before loading."""

from __future__ import annotations

import json
from collections.abc import Callable

import published
import pytest

from kernelhub import get_kernel
from kernelhub.cli import group, run
from kernelhub.settings import scope

Publish = Callable[..., str]


def test_versions(publish: Publish, capsys: pytest.CaptureFixture[str]) -> None:
    commits = [publish("demo/k", published.variant(), version=n) for n in (0, 2)]
    assert run(group, ["versions", "demo/k"]) == 0
    assert capsys.readouterr().out == f"   0  {commits[0]}  unstable\n   2  {commits[1]}\n"
    assert run(group, ["versions", "demo/k", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["versions"]
    assert found == {"0": commits[0], "2": commits[1]}
    assert run(group, ["versions", "demo/none"]) == 1
    assert "demo/none" in capsys.readouterr().err


def test_variants(publish: Publish, capsys: pytest.CaptureFixture[str]) -> None:
    files = {**published.variant(), **published.variant(backend="tpu")}
    publish("demo/k", files)
    assert run(group, ["variants", "demo/k==1"]) == 0
    assert capsys.readouterr().out == (
        "* torch-cpu  torch on cpu\n"
        "  torch-tpu  is for tpu, and cpu is what this machine has\n"
        "* would be loaded\n"
    )
    assert run(group, ["variants", "demo/k", "--backend", "tpu", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["chosen"] == "torch-tpu"
    with scope(interpret=False):
        assert run(group, ["variants", "demo/k", "--backend", "xpu"]) == 1
        assert "none runs on this machine" in capsys.readouterr().out
        assert run(group, ["variants", "demo/k", "--backend", "xpu", "--json"]) == 1
        assert json.loads(capsys.readouterr().out)["chosen"] is None
    publish("demo/empty", {"README.md": b"x"})
    assert run(group, ["variants", "demo/empty==1"]) == 1
    assert capsys.readouterr().out == "no build is published\n"


def test_cache_list(publish: Publish, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(group, ["cache", "list"]) == 0
    assert capsys.readouterr().out.startswith("0 variants in ")
    commit = publish("demo/k", published.variant())
    get_kernel("demo/k", version=1, trust_remote_code=True)
    assert run(group, ["cache", "list"]) == 0
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith(f"demo/k  {commit[:12]}  torch-cpu  ")
    assert last.startswith("1 variant in ")
    assert run(group, ["cache", "list", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["variants"]
    assert (row["repo_id"], row["commit"], row["variant"]) == ("demo/k", commit, "torch-cpu")


@pytest.mark.parametrize("command", [["-h"], ["versions", "-h"], ["cache", "list", "-h"]])
def test_short_help(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    from kernel_builder import cli as builder

    assert run(group, command) == 0
    assert "-h, --help" in capsys.readouterr().out
    assert run(builder.group, ["build", "-h"]) == 0
    assert "-h, --help" in capsys.readouterr().out
