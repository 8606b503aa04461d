"""Stock clients, unmodified, in processes of their own."""

from __future__ import annotations

import importlib.metadata
import json
import sys
from pathlib import Path

import pytest
from packaging.version import Version

from kernelhub.serve.limits import Limits
from kernelhub.serve.testing import running_hub

SCRIPTS = Path(__file__).parent / "scripts"
BIN = Path(sys.executable).parent


@pytest.mark.parametrize("kind", ["kernel", "model"])
def test_huggingface_hub_end_to_end(tmp_path, client, peer_python, kind):
    limits = Limits(lfs_from=3000, page=3, expanded_page=3)
    with running_hub(tmp_path / "hub", limits=limits) as hub:
        script = SCRIPTS / "stock_client.py"
        # Here even small files go through LFS, so those given as bytes need Xet switched off.
        done = client(hub.url, peer_python, script, kind, tmp_path, HF_HUB_DISABLE_XET="1")
        assert json.loads(done.stdout.splitlines()[-1]) == {"done": kind}
        trees = [r for r in hub.requests if "/tree/" in r.path]
        assert any("cursor=" in r.query for r in trees), "nothing was paged"
        assert any(r.method == "PUT" for r in hub.requests), "nothing went through LFS"
        assert all(r.status < 500 for r in hub.requests)


def test_multipart_upload_and_resume_by_range(tmp_path, client, peer_python):
    limits = Limits(lfs_from=1000, multipart_from=2_000_000, part_bytes=1_500_000)
    code = """
import os, sys
from huggingface_hub import HfApi, hf_hub_download
data = os.urandom(4_000_000)
api = HfApi()
api.create_repo("demo/parts", repo_type="model")
api.upload_file(path_or_fileobj=data, path_in_repo="parts.bin", repo_id="demo/parts")
assert open(hf_hub_download("demo/parts", "parts.bin"), "rb").read() == data
"""
    with running_hub(tmp_path / "hub", limits=limits) as hub:
        client(hub.url, peer_python, "-c", code, HF_HUB_DISABLE_XET="1")
        parts = [r for r in hub.requests if r.path.startswith("/api/lfs/part/")]
        assert [(r.method, r.status) for r in parts] == [("PUT", 200)] * 3
        folder = hub.root / "models" / "demo" / "parts.git" / "lfs"
        assert list((folder / "parts").iterdir()) == [], "parts are removed once joined"


@pytest.mark.skipif(
    Version(importlib.metadata.version("huggingface_hub")) < Version("2.3"),
    reason="its `hf upload` knows no kernels",
)
def test_hf_command_uploads_and_downloads_out_of_the_box(tmp_path, hub, client):
    source = tmp_path / "source" / "build" / "torch-cpu"
    source.mkdir(parents=True)
    (source / "__init__.py").write_text("x = 1\n")
    (source / "table.bin").write_bytes(bytes(range(256)) * 8000)  # 2 MB, binary
    (tmp_path / "source" / "README.md").write_text("---\nlicense: mit\n---\n")
    hf, of_kind = BIN / "hf", ("--type", "kernel")
    client(hub.url, hf, "repos", "create", "demo/cmd", *of_kind)
    upload = (hf, "upload", "demo/cmd", tmp_path / "source", ".", *of_kind)
    client(hub.url, *upload, "--revision", "v1")
    client(hub.url, hf, "repos", "branch", "create", "demo/cmd", "v2", *of_kind)
    target = tmp_path / "target"
    download = (hf, "download", "demo/cmd", *of_kind, "--revision", "v1", "--local-dir", target)
    client(hub.url, *download)
    for name in ("__init__.py", "table.bin"):
        assert (target / "build/torch-cpu" / name).read_bytes() == (source / name).read_bytes()
    client(hub.url, hf, "repos", "delete", "demo/cmd", *of_kind, "--yes")


def test_kernels_loads_lists_and_locks(tmp_path, client, ask, make_repo, commit):
    pytest.importorskip("kernels")
    metadata = {
        "name": "add-one",
        "id": "_add_one_cpu_abc1234",
        "version": 1,
        "license": "Apache-2.0",
        "python-depends": [],
        "backend": {"type": "cpu"},
    }
    files = {
        "README.md": b"---\nlicense: apache-2.0\n---\n",
        "build/torch-cpu/__init__.py": b"from .ops import add_one\n__all__ = ['add_one']\n",
        "build/torch-cpu/ops.py": b"def add_one(x):\n    return x + 1\n",
        "build/torch-cpu/metadata.json": json.dumps(metadata).encode(),
    }
    project = tmp_path / "project"
    project.mkdir()
    (project / "pyproject.toml").write_text('[tool.kernels.dependencies]\n"demo/add-one" = 1\n')
    code = """
import sys, torch, kernels
from kernels.cli import main
assert kernels.get_kernel("demo/add-one", version=1).add_one(torch.ones(2)).tolist() == [2, 2]
try:
    kernels.get_kernel("stranger/add-one", version=1)
except ValueError as error:
    assert "trust" in str(error), error
else:
    raise AssertionError("a publisher that is not marked as trusted was trusted")
for words in (["versions", "demo/add-one"], ["lock", sys.argv[1]]):
    sys.argv[1:] = words
    try:
        main()
    except SystemExit as end:
        assert not end.code, (words, end.code)
"""
    with running_hub(tmp_path / "hub", trusted=["demo"]) as hub:
        for repo in ("demo/add-one", "stranger/add-one"):
            make_repo(hub.url, repo)
            ask(hub.url, "POST", f"/api/kernels/{repo}/branch/v1", {})
            assert commit(hub.url, repo, files, revision="v1").status == 200
        done = client(hub.url, sys.executable, "-c", code, project)
    assert "Version 1" in done.stdout
    lock = json.loads((project / "kernels.lock").read_text())
    assert "demo/add-one" in json.dumps(lock)
