"""The tests of each example pass, each in a process of its own.

A Triton kernel that is loaded on a machine without a GPU puts its whole process into Triton's
interpreter; tests of other rooms in the same process would notice.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
QUICK = ("flash-attn", "fused-matmul", "rms-norm", "softmax")
# What the default run leaves out of an example. Compilation for absent GPUs takes most of an hour:
# `pytest -m slow examples/flash-attn/tests/test_compilation.py`.
THOROUGH = {"flash-attn": "test_attention.py"}
NEEDS = {"fused-matmul": "jax"}
JAX = sorted(folder.parent.name for folder in (ROOT / "examples").glob("*/jax-tests"))
OTHERS = sorted(
    folder.parent.name
    for folder in (ROOT / "examples").glob("*/tests")
    if folder.parent.name not in QUICK
)


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)]
)
def test_example(name: str, tmp_path: Path) -> None:
    pytest.importorskip(NEEDS.get(name, "triton"))
    run(f"examples/{name}/tests", tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", THOROUGH)
def test_what_the_default_run_leaves_out(name: str, tmp_path: Path) -> None:
    pytest.importorskip("triton")
    run(f"examples/{name}/tests/{THOROUGH[name]}", tmp_path, "-m", "slow")


@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", JAX)
@pytest.mark.parametrize("marker", ["not slow", pytest.param("slow", marks=pytest.mark.slow)])
def test_jax_example(name: str, marker: str, tmp_path: Path) -> None:
    pytest.importorskip("jax")
    run(f"examples/{name}/jax-tests", tmp_path, "-m", marker)


def run(folder: str, tmp_path: Path, *options: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry),
        "HYPOTHESIS_STORAGE_DIRECTORY": str(tmp_path / "hypothesis"),
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",  # XLA takes half the time to compile what is small
    }
    environment.pop("TRITON_INTERPRET", None)
    done = subprocess.run(
        [*command, *options, folder],
        cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, timeout=380, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:]
