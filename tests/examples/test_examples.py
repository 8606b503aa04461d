"""The tests of the examples pass, in one process for each framework.

A Triton kernel that is loaded on a machine without a GPU puts its whole process into Triton's
interpreter; tests of other rooms in the same process would notice. Examples of one framework share
a process, since each would spend more on importing it than on most of its tests.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
PALLAS = ("fused-matmul",)  # whose `tests` are of a JAX package, the only one
JAX = sorted([*EXAMPLES.glob("*/jax-tests"), *(EXAMPLES / name / "tests" for name in PALLAS)])
TRITON = sorted(set(EXAMPLES.glob("*/tests")) - set(JAX))
# What the default run leaves out of the Triton examples. Compilation for absent GPUs takes most of
# an hour: `pytest -m slow examples/flash-attn/tests/test_compilation.py`.
THOROUGH = [
    EXAMPLES / "flash-attn/tests/test_attention.py",
    EXAMPLES / "rms-norm/tests",
    EXAMPLES / "softmax/tests",
]


@pytest.mark.timeout(400)
def test_triton_examples(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    run(TRITON, tmp_path)


@pytest.mark.timeout(400)
def test_jax_examples(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    run(JAX, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_what_the_default_run_leaves_out_of_triton_examples(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    run(THOROUGH, tmp_path, "slow")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_what_the_default_run_leaves_out_of_jax_examples(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    run(JAX, tmp_path, "slow")


def run(paths: list[Path], tmp_path: Path, marker: str = "not slow") -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", marker]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry),
        "HYPOTHESIS_STORAGE_DIRECTORY": str(tmp_path / "hypothesis"),
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",  # XLA takes half the time to compile what is small
    }
    environment.pop("TRITON_INTERPRET", None)
    done = subprocess.run(
        [*command, *map(str, paths)],
        cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, timeout=880, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:]
