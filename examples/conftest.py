"""Every example is tested as users get it: built, published on a Hub, loaded with `get_kernel`.

Run the tests of one example in a process of its own, `pytest examples/rms-norm/tests`: on a machine
without a GPU a Triton kernel puts the whole process into Triton's interpreter.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from unittest import mock

import pytest
from hypothesis import settings

from kernel_builder.hub import Hub
from kernel_builder.pack import build
from kernel_builder.project import Project
from kernel_builder.publish import Options, publish
from kernelhub import get_kernel
from kernelhub.serve.testing import running_hub

settings.register_profile("every-run", max_examples=50, deadline=None)
settings.register_profile("deep", max_examples=2000, deadline=None)
settings.load_profile("every-run")  # which the option overrules, as in tests/conftest.py

LoadPublished = Callable[..., ModuleType]


@pytest.fixture(scope="session")
def load_published() -> Iterator[LoadPublished]:
    """Build a project, publish it on a Hub of this session, load it from there."""
    with tempfile.TemporaryDirectory(prefix="kernelhub-examples-") as name:
        folder = Path(name)
        with (
            running_hub(folder / "hub") as hub,
            mock.patch.dict(
                os.environ,
                HF_HOME=str(folder / "home"),
                KERNELHUB_CACHE=str(folder / "cache"),
                HF_ENDPOINT=hub.url,
            ),
        ):

            def load(root: Path, framework: str | None = None) -> ModuleType:
                project = Project.open(root)
                output = folder / "builds" / root.name
                built = build(project, output)
                assert built.variants
                repo_id = f"demo/{project.build_file.name}"
                publish(project, Hub(hub.url, None), Options(repo_id=repo_id, output=output))
                version = project.build_file.version
                return get_kernel(
                    repo_id, version=version, trust_remote_code=[repo_id], framework=framework
                )

            yield load


@pytest.fixture(scope="module")
def kernel(request: pytest.FixtureRequest, load_published: LoadPublished) -> ModuleType:
    """The kernel of the example whose tests run; `jax-tests` are those of its JAX package."""
    framework = "jax" if request.path.parent.name == "jax-tests" else None
    return load_published(request.path.parents[1], framework)
