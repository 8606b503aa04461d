"""Fixtures shared by all tests: a cache and home of their own, and no real Hub."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def isolated_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the developer's machine leaks in; nothing leaves it."""
    for name in (
        "HF_TOKEN",
        "LOCAL_KERNELS",
        "HF_HUB_OFFLINE",
        "KERNELHUB_OFFLINE",
        "KERNELHUB_TRUST",
        "KERNELHUB_LOCK",
        "KERNELHUB_PROJECT",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf-home"))
    monkeypatch.setenv("KERNELHUB_CACHE", str(tmp_path / "kernelhub-cache"))
    monkeypatch.setenv("KERNELHUB_CONFIG", str(tmp_path / "kernelhub-config"))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # the discard port: nobody answers
