"""HF's own client loads and runs what we publish."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys

import pytest

from kernel_builder.hub import Hub
from kernel_builder.pack import build
from kernel_builder.project import Project
from kernel_builder.publish import Options, publish

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("kernels") is None, reason="HF's kernels is not installed"
)


def publish_sample(hub, root, repo_id):
    project = Project.open(root)
    build(project)
    publish(project, Hub(hub.url), Options(repo_id=repo_id))


def run(hub, tmp_path, code, **environment):
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={
            **os.environ,
            "HF_ENDPOINT": hub.url,
            "HF_HOME": str(tmp_path / "peer"),
            "PYTHONPATH": "",
            **environment,
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_torch_kernels_run_and_jax_variants_do_not_disturb(hub, sample, tmp_path):
    publish_sample(hub, sample("fused-relu"), "demo/fused-relu")
    both = sample("both-frameworks")
    toml = both / "build.toml"
    toml.write_text(toml.read_text().replace('"einops>=0.7", ', ""))
    publish_sample(hub, both, "demo/both")
    code = """
import torch
from kernels import get_kernel
k = get_kernel("demo/fused-relu", version=1, trust_remote_code=True)
x = torch.tensor([-1.0, 2.0])
print(k.relu(x, 0.5).tolist(), k.layers.ReLU()(x).tolist(), k.scales())
print(torch.compile(k.relu, backend="eager", fullgraph=True)(x, 2.0).tolist())
k = get_kernel("demo/both", version=0, trust_remote_code=True)
print(k.double(torch.ones(2)).tolist())
"""
    assert run(hub, tmp_path, code).splitlines() == [
        "[0.0, 1.0] [0.0, 2.0] [0.5, 1.0]",
        "[0.0, 4.0]",
        "[2.0, 2.0]",
    ]


def test_triton_kernel_that_depends_on_another(hub, sample, tmp_path):
    pytest.importorskip("triton")
    publish_sample(hub, sample("fused-relu"), "demo/fused-relu")
    root = sample("triton-scale")
    toml = root / "build.toml"
    toml.write_text(toml.read_text().replace('python-depends = ["einops"]\n', ""))
    publish_sample(hub, root, "demo/triton-scale")
    code = """
import torch
from kernels import get_kernel
k = get_kernel("demo/triton-scale", version=2, trust_remote_code=True)
x = torch.arange(300.0)
print(torch.equal(k.scale(x, 3.0), 3 * x))
"""
    assert run(hub, tmp_path, code, TRITON_INTERPRET="1").strip() == "True"


def test_its_own_hash_agrees_with_the_digest(sample, hub, tmp_path):
    root = sample("fused-relu")
    build(Project.open(root))
    variant = root / "build" / "torch-cpu"
    code = f"""
import json
from kernels._rust import Digest, DigestAlgorithm
found = Digest.hash_variant(DigestAlgorithm.SHA256, {str(variant)!r})
print(json.dumps(dict(found.files)))
"""
    digest = json.loads((variant / "metadata.json").read_bytes())["digest"]
    assert json.loads(run(hub, tmp_path, code)) == digest["files"]
