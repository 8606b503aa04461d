"""flash-attn as a user gets it: built, published on an embedded Hub, loaded with `get_kernel`."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

os.environ["HF_HUB_DISABLE_XET"] = "1"  # the embedded Hub takes large files by LFS

REPO = "kernelhub/flash-attn"
PROJECT = Path(__file__).parents[1] / "examples" / "flash-attn"


@contextmanager
def published(project: Path = PROJECT) -> Iterator[str]:
    """The address of a Hub that holds a build of the project; this process and its children ask it.

    Must be entered before anything imports huggingface_hub, which reads its settings once.
    """
    from kernelhub.serve.testing import running_hub

    with tempfile.TemporaryDirectory() as folder, running_hub(Path(folder) / "hub") as hub:
        os.environ |= {
            "HF_ENDPOINT": hub.url,
            "HF_HOME": str(Path(folder) / "home"),
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        }
        from kernel_builder.hub import Hub
        from kernel_builder.pack import build
        from kernel_builder.project import Project
        from kernel_builder.publish import Options, publish

        copy = Path(folder) / "project"
        shutil.copytree(project, copy, ignore=shutil.ignore_patterns("build", "__pycache__"))
        opened = Project.open(copy)
        build(opened)
        publish(opened, Hub(hub.url), Options(repo_id=REPO))
        yield hub.url
