"""The kernel's source as an importable package, with the `_ops.py` that a build generates."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path
from types import ModuleType

SOURCE = Path(__file__).parents[1] / "torch-ext" / "flash_attn"
OPS = '''"""What a build generates: a namespace for the ops of this build."""


def add_op_namespace_prefix(name: str) -> str:
    return f"_NAMESPACE::{name}"
'''


def load(folder: Path, name: str = "flash_attn_under_test") -> ModuleType:
    """Imports a copy of the source from `folder`, under `name`."""
    package = folder / "flash_attn"
    shutil.copytree(SOURCE, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "_ops.py").write_text(OPS.replace("NAMESPACE", name))
    spec = importlib.util.spec_from_file_location(name, package / "__init__.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
