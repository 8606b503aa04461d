"""One Hub and one client that forks, for all tests of this folder."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.faultlab import cases, lab

Cleans = dict[str, lab.Clean]


@pytest.fixture(scope="session")
def laboratory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[lab.Lab, Cleans]]:
    """A client and what its operations cost undisturbed, by name."""
    os.environ["HF_HUB_DISABLE_XET"] = "1"
    with lab.laboratory(tmp_path_factory.mktemp("lab"), ("kernelhub",)) as labs:
        ours = labs["kernelhub"]
        yield ours, {operation: ours.clean(operation) for operation in cases.OPERATIONS}


@pytest.fixture
def cut_answers() -> Iterator[None]:
    """Answers that are cut short leave files to the garbage collector; so it runs here."""
    yield
    gc.collect()
