"""One repository for torch and JAX: who gets which variant, and what works without the other.

Each case is a process of its own, because what a process has imported is part of the choice.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import published
import pytest


def needs(*names: str) -> pytest.MarkDecorator:
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"needs {', '.join(names)}")


TORCH = b"import torch\n\n\ndef double(x):\n    return torch.as_tensor(x) * 2\n"
JAX = b"import jax\n\n\ndef double(x):\n    return jax.jit(lambda x: x * 2)(x)\n"
NEEDS_JAX = {"languages": ["pallas"], "requires": {"jax": ">=0.8"}}

BEGIN = """
import sys, json
from pathlib import Path
def hide(name):
    sys.modules[name] = None
def told(load):
    from kernelhub import get_loaded_kernels
    from kernelhub.errors import KernelHubError
    try:
        module = load()
    except KernelHubError as error:
        return str(error)
    kernel = next(k for k in get_loaded_kernels() if k.module is module)
    return [kernel.variant, float(module.double(3.0))]
def local(name, **options):
    from kernelhub import get_local_kernel
    return told(lambda: get_local_kernel(Path(sys.argv[1]) / name, **options))
found = []
"""


@pytest.fixture
def run(tmp_path: Path) -> Callable[[str], list[Any]]:
    """Runs lines in a new process, beside the folders `both` and `only-jax`; gives `found`."""
    both = published.variant({"__init__.py": TORCH}) | published.variant(
        {"__init__.py": JAX}, folder="jax-cpu", extension=NEEDS_JAX
    )
    only = published.variant({"__init__.py": JAX}, folder="jax-cpu", extension=NEEDS_JAX)
    old = published.variant(
        {"__init__.py": JAX}, folder="jax-cpu", extension={"requires": {"jax": ">=0.4,<0.5"}}
    )
    for name, files in (("both", both), ("only-jax", only), ("old", old)):
        for path, data in files.items():
            (tmp_path / name / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name / path).write_bytes(data)

    def run(lines: str) -> list[Any]:
        done = subprocess.run(
            [sys.executable, "-c", f"{BEGIN}\n{lines}\nprint(json.dumps(found))", str(tmp_path)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return list(json.loads(done.stdout.splitlines()[-1]))

    return run


@needs("jax")
def test_jax_alone(run: Callable[[str], list[Any]]) -> None:
    found = run("""
hide("torch"), hide("triton")
found += [local("both"), local("only-jax"), local("both", framework="torch"), local("old")]
""")
    assert found[:2] == [["jax-cpu", 6.0], ["jax-cpu", 6.0]]
    assert "torch-cpu: torch is not installed" in found[2]
    assert "needs jax>=0.4,<0.5, and " in found[3]


@needs("torch")
def test_torch_alone(run: Callable[[str], list[Any]]) -> None:
    found = run("""
hide("jax"), hide("jaxlib")
found += [local("both"), local("only-jax"), local("both", framework="jax")]
""")
    assert found[0] == ["torch-cpu", 6.0]
    assert all("jax-cpu: jax is not installed" in text for text in found[1:])


@needs("jax", "torch")
def test_both_the_process_that_uses_jax(run: Callable[[str], list[Any]]) -> None:
    """What is used decides; what is asked for wins; both live side by side under one name."""
    found = run("""
import jax
found += [local("both"), local("both", framework="torch"), "torch" in sys.modules]
""")
    assert found == [["jax-cpu", 6.0], ["torch-cpu", 6.0], True]


@needs("jax", "torch")
def test_both_and_neither_is_used(run: Callable[[str], list[Any]]) -> None:
    found = run("""
found += [local("both"), local("both", framework="jax"), local("both"), local("only-jax")]
""")
    assert [variant for variant, _ in found] == ["torch-cpu", "jax-cpu", "torch-cpu", "jax-cpu"]


@needs("jax", "torch")
def test_a_torch_program_that_gets_a_jax_kernel_is_told(run: Callable[[str], list[Any]]) -> None:
    found = run("""
import logging, torch
class Said(logging.Handler):
    def emit(self, record):
        found.append(record.getMessage())
logging.getLogger("kernelhub").addHandler(Said())
local("only-jax", framework="jax"), local("only-jax"), local("only-jax")
""")
    slow, text = found  # each once
    assert "Pallas kernels are interpreted on a CPU, which is slow" in slow
    assert "takes JAX arrays; kernelhub.bridge.as_torch makes its functions take torch" in text
