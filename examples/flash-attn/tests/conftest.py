"""The kernel on the GPU where there is one, else in Triton's interpreter."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))  # for the helpers beside the tests

GPU = torch.cuda.is_available()
if not GPU:
    from kernelhub import interpreter

    interpreter.enable()


@pytest.fixture(scope="session")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    from flash_package import load

    return load(tmp_path_factory.mktemp("kernel"))


@pytest.fixture(scope="session")
def device() -> str:
    return "cuda" if GPU else "cpu"
