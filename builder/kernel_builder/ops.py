"""The generated `_ops.py` of torch packages: the operator namespace of one build.

Kernels register custom operators under names of their own build, so that two builds live side by
side in one process. The role is that of HF's builder: module attribute `ops` and function
`add_op_namespace_prefix(name)`; the namespace is `_<python name>_<backend>_<uid>`, with the backend
of the running torch, because all variants of a build share the file.
"""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

_TEXT = '''\
"""Operator namespace of this build. Written by kernel-builder; edits are lost."""

import torch


def _has_device(name):
    homes = (getattr(torch, name, None), getattr(torch.backends, name, None))
    checks = (getattr(home, "is_available", None) for home in homes)
    return any(check() for check in checks if check is not None)


def _backend():
    for name in ("tpu", "neuron"):
        if _has_device(name):
            return name
    if torch.version.cuda is not None:
        return "cuda"
    if torch.version.hip is not None:
        return "rocm"
    for device, name in (("mps", "metal"), ("xpu", "xpu"), ("npu", "cann")):
        if _has_device(device):
            return name
    return "cpu"


_NAMESPACE = f"_{python_name}_{{_backend()}}_{uid}"
ops = getattr(torch.ops, _NAMESPACE)


def add_op_namespace_prefix(op_name):
    """Return `op_name` qualified with the namespace of this build."""
    return f"{{_NAMESPACE}}::{{op_name}}"
'''


def render_ops(python_name: str, uid: str) -> bytes:
    """The text of `_ops.py` for a build, the same for each of its torch variants."""
    text = _TEXT.replace("{python_name}", python_name).replace("{uid}", uid)
    return text.replace("{{", "{").replace("}}", "}").encode()


def stand_in_for_ops(python_name: str, folder: Path) -> None:
    """Let a package that was not built be imported: play the role of its `_ops` in this process.

    Torch is imported when the package asks for `ops`, not before: one without operators may do
    without torch, whose import takes seconds.

    Args:
        python_name: of the package, which is a folder in `folder`.
    """
    if (folder / python_name / "_ops.py").exists():
        return
    namespace = f"_{python_name}_unbuilt"
    module: Any = types.ModuleType(f"{python_name}._ops")
    module.add_op_namespace_prefix = lambda name: f"{namespace}::{name}"

    def on_demand(name: str) -> Any:
        if name != "ops":
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
        import torch

        return getattr(torch.ops, namespace)

    module.__getattr__ = on_demand
    sys.modules[module.__name__] = module
