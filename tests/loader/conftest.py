"""A live Hub, a way to publish on it, and a process-wide state that each test finds empty."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernelhub.serve.testing import RunningHub, running_hub

sys.path.insert(0, str(Path(__file__).parent))

import published

Publish = Callable[..., str]


@pytest.fixture(scope="session")
def one_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    with running_hub(tmp_path_factory.mktemp("hub"), trusted=["trusted-org"]) as running:
        yield running


@pytest.fixture
def hub(one_hub: RunningHub, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningHub]:
    """The Hub, with no faults and no requests; its repositories are gone after the test."""
    monkeypatch.setenv("HF_ENDPOINT", one_hub.url)
    one_hub.faults.replace([])
    yield one_hub
    one_hub.faults.replace([])
    published.remove_all(one_hub.url)
    published.asked(one_hub)
    one_hub.clear()


@pytest.fixture
def publish(hub: RunningHub) -> Publish:
    """Publish files (`published.variant(...)`), and forget the requests that it took."""

    def run(repo_id: str, files: dict[str, bytes | None], **options: object) -> str:
        commit = published.publish(hub.url, repo_id, files, **options)
        published.asked(hub)
        hub.clear()
        return commit

    return run


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Mount a small disk with these options (again to change them); gives its folder."""
    disk = tmp_path / "disk"
    disk.mkdir()

    def run(options: str) -> Path:
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(disk)]
        if shutil.which("mount") is None or subprocess.run(command, check=False).returncode:
            pytest.skip("file systems cannot be mounted here")
        return disk

    yield run
    while os.path.ismount(disk):
        subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.fixture
def cut_answers() -> Iterator[None]:
    """For tests in which answers of the Hub are cut short, by it or by a client that is killed.

    It leaves the file that it was reading to the garbage collector; so that is run here, where the
    test's mark lets the warning pass, and not in another test.
    """
    yield
    gc.collect()
