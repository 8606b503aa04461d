"""A live Hub, a way to publish on it, and a process-wide state that each test finds empty."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernelhub.serve.testing import RunningHub, running_hub

sys.path.insert(0, str(Path(__file__).parent))

import published  # noqa: E402 - a helper beside this file

Publish = Callable[..., str]


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningHub]:
    with running_hub(tmp_path / "hub", trusted=["trusted-org"]) as running:
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        yield running


@pytest.fixture
def publish(hub: RunningHub) -> Publish:
    """Publish files (`published.variant(...)`), and forget the requests that it took."""

    def run(repo_id: str, files: dict[str, bytes | None], **options: object) -> str:
        commit = published.publish(hub.url, repo_id, files, **options)
        hub.clear()
        return commit

    return run
