"""Small projects that tests write, each sound but for what a test changes."""

from __future__ import annotations

from pathlib import Path

BUILD = """
[general]
name = "scale-it"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cuda"]

[torch-noarch]
"""

INIT = """
import torch

from .kernels import double


def scale(x: torch.Tensor) -> torch.Tensor:
    return double(x)


__all__ = ["scale"]
"""

KERNELS = """
def double(x):
    return x + x
"""


def project(root: Path, files: dict[str, str | bytes] | None = None, *, build: str = BUILD) -> Path:
    """Write a sound project below `root`, with `files` (relative to its package) in addition."""
    package = root / "torch-ext" / "scale_it"
    package.mkdir(parents=True)
    (root / "build.toml").write_text(build, encoding="utf-8")
    for name, content in {"__init__.py": INIT, "kernels.py": KERNELS, **(files or {})}.items():
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return root
