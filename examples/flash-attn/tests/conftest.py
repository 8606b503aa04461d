"""The kernel as a package, with the `_ops.py` that a build generates, on a GPU or in Triton's interpreter."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest

SOURCE = Path(__file__).parents[1] / "torch-ext" / "flash_attn"
OPS = '''"""What a build generates: a namespace for the ops of this build."""

import torch

ops = torch.ops._flash_attn_test


def add_op_namespace_prefix(name: str) -> str:
    return f"_flash_attn_test::{name}"
'''


def gpu() -> bool:
    import torch

    return torch.cuda.is_available()


if not gpu():
    os.environ.setdefault("TRITON_INTERPRET", "1")


def load(folder: Path, name: str = "flash_attn_under_test") -> ModuleType:
    """Imports a copy of the source, completed as a build would."""
    package = folder / "flash_attn"
    shutil.copytree(SOURCE, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "_ops.py").write_text(OPS)
    spec = importlib.util.spec_from_file_location(name, package / "__init__.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return load(tmp_path_factory.mktemp("kernel"))


@pytest.fixture(scope="session")
def device() -> str:
    return "cuda" if gpu() else "cpu"
