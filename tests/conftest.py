"""Fixtures shared by all tests: a cache and home of their own, and no real Hub.

Properties are tried on 50 examples, or a fraction or multiple of that where one is dear or cheap;
`pytest --hypothesis-profile deep --timeout 3600` tries 40 times as many. The time allowed for a
test has to grow with them: one that is stopped while an example is made fails as if it were flaky.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("every-run", max_examples=50, deadline=None)
settings.register_profile("deep", max_examples=2000, deadline=None)
settings.load_profile("every-run")  # which the option overrules


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
