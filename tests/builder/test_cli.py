"""The commands: what they print, where, and their exit codes."""

from __future__ import annotations

import io
import json

import pytest

from kernel_builder import cli_progress
from kernel_builder.cli import group
from kernelhub.cli import run

REPO = "demo/my-relu"


@pytest.fixture
def call(capfd):
    def call(*args):
        code = run(group, [str(arg) for arg in args])
        out, err = capfd.readouterr()
        return code, out, err

    return call


def test_the_road_of_an_author(call, hub, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    root = tmp_path / "my-relu"
    assert call("init", "my-relu", "--language", "torch", "--path", root)[0] == 0
    code, out, err = call("build", root)
    assert code == 0
    assert "torch-xpu" in out
    assert "build my-relu" in err
    code, out, _ = call("publish", root, "--repo-id", REPO, "--dry-run")
    assert code == 0
    assert "does not exist yet" in out
    assert "+ build/torch-cpu/gate.py" in out
    code, out, _ = call("publish", root, "--repo-id", REPO)
    assert code == 0
    assert f"{hub.url}/kernels/{REPO}/commit/" in out
    code, out, _ = call("publish", root, "--repo-id", REPO, "--json")
    facts = json.loads(out)
    assert code == 0
    assert [(b["branch"], b["commit"]) for b in facts["branches"]] == [("v1", None), ("main", None)]
    code, out, _ = call("publish", root, "--repo-id", REPO)
    assert "up to date" in out


def test_json_of_a_build(call, make_project):
    root = make_project({"notes.txt": ""})
    code, out, err = call("build", root, "--json", "--output", root / "out")
    facts = json.loads(out)
    assert code == 0
    assert err == ""
    assert [v["name"] for v in facts["variants"]] == ["torch-cpu", "torch-cuda"]
    assert facts["left_out"] == ["torch-ext/my_relu/notes.txt"]
    assert facts["folder"] == str(root / "out")


def test_card_to_a_file(call, make_project, tmp_path):
    root = make_project()
    assert call("card", root)[1].startswith("---\nlibrary_name: kernels\n")
    assert call("card", root, "--output", tmp_path / "card.md", "--repo-id", REPO)[0] == 0
    assert REPO in (tmp_path / "card.md").read_text()
    assert call("card", root, "--output", tmp_path / "no" / "card.md")[0] == 1


def test_errors_are_text_and_exit_codes(call, make_project, tmp_path):
    code, out, err = call("build", tmp_path)
    assert (code, out) == (1, "")
    assert err.startswith("error: ")
    assert "kernel-builder init" in err
    assert call("init", "x y")[0] == 1
    assert call("init")[0] == 2
    assert call("publish", "--no-such-option")[0] == 2
    code, _, err = call("publish", make_project(), "--endpoint", "ftp://hub", "--repo-id", REPO)
    assert code == 1
    assert "http" in err


def test_breaks_exit_with_1_and_are_listed(call, hub, make_project):
    options = ("--endpoint", hub.url, "--repo-id", REPO)
    call("build", make_project())
    call("publish", make_project(), *options)
    root = make_project({"__init__.py": "__all__ = []\n"})
    call("build", root)
    code, _, err = call("publish", root, *options)
    assert code == 1
    assert "  - relu: is no longer public" in err
    code, out, _ = call("publish", root, *options, "--allow-breaking")
    assert code == 0
    assert "break: relu" in out


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_bars_on_a_terminal(monkeypatch):
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    with cli_progress.reporting() as reporter:
        assert isinstance(reporter, cli_progress.BarReporter)
        reporter.stage("publish v1", 200, "bytes")
        reporter.advance(50, "[a] b.py")
        reporter.say("[bold]not markup")
        reporter.stage("next")
        reporter.done()
        reporter.done()
    assert "publish v1" in screen.getvalue()
    assert "[bold]not markup" in screen.getvalue()


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (1_500, "1.5 kB"), (2 * 10**12, "2000.0 GB")]
)
def test_amounts(count, text):
    assert cli_progress.amount(count) == text
    assert cli_progress.amount(3, "files") == "3 files"


def test_help_lists_the_commands_in_the_order_of_work(capsys):
    assert run(group, ["--help"]) == 0
    _, _, listed = capsys.readouterr().out.partition("Commands:\n")
    names = [
        line.split()[0] for line in listed.splitlines() if line.startswith("  ") and line[2] != " "
    ]
    wanted = "init check build tune evaluate publish sign card migrate schema"
    assert names == wanted.split()
