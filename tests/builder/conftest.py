"""Projects and a live Hub for the builder's tests."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from kernelhub.serve.testing import RunningHub, running_hub

SAMPLES = Path(__file__).parent / "samples"

BUILD_TOML = """\
[general]
name = "{name}"
version = {version}
edition = 5
license = "Apache-2.0"
backends = [{backends}]

[torch-noarch]
pyext = ["py", "json", "bin"]
"""

SOURCE = '''\
import torch

__all__ = ["relu"]


def relu(x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    """Return scale * max(x, 0)."""
    return torch.relu(x) * scale
'''

MakeProject = Callable[..., Path]


@pytest.fixture
def make_project(tmp_path: Path) -> MakeProject:
    """Write a torch project; `files` are added to, or replace, those of its package."""

    def make(
        files: Mapping[str, str | bytes] | None = None,
        *,
        name: str = "my-relu",
        version: int = 1,
        backends: tuple[str, ...] = ("cpu", "cuda"),
        folder: str | None = None,
    ) -> Path:
        root = tmp_path / (folder or name)
        package = root / "torch-ext" / name.replace("-", "_")
        listed = ", ".join(f'"{backend}"' for backend in backends)
        write(root / "build.toml", BUILD_TOML.format(name=name, version=version, backends=listed))
        for path, content in {"__init__.py": SOURCE, **(files or {})}.items():
            write(package / path, content)
        return root

    return make


@pytest.fixture
def sample(tmp_path: Path) -> Callable[[str], Path]:
    """A private copy of one of the sample projects."""

    def copy(name: str) -> Path:
        return Path(shutil.copytree(SAMPLES / name, tmp_path / name))

    return copy


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[RunningHub]:
    """An empty live Hub."""
    with running_hub(tmp_path / "hub-root") as running:
        yield running


def write(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
