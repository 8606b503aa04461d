"""A live Hub to publish on, a project folder, and the commands run in this process."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernelhub.cli import group, run
from kernelhub.serve.testing import RunningHub, running_hub

sys.path.insert(0, str(Path(__file__).parents[1] / "loader"))

import published

Publish = Callable[..., str]
Command = Callable[..., "Outcome"]


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningHub]:
    with running_hub(tmp_path / "hub", trusted=["trusted-org"]) as running:
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        yield running


@pytest.fixture
def publish(hub: RunningHub) -> Publish:
    """Publish files (`published.variant(...)`), and forget the requests that it took."""

    def one(repo_id: str, files: dict[str, bytes | None], **options: object) -> str:
        commit = published.publish(hub.url, repo_id, files, **options)
        hub.clear()
        return commit

    return one


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project, which is the working directory."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


class Outcome:
    """Exit code and output of a command."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    """Run `kernelhub` with arguments, as its entry point does."""

    def call(*arguments: str | Path) -> Outcome:
        capsys.readouterr()
        code = run(group, [str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return Outcome(code, out, err)

    return call
