"""Triton's interpreter, made right: the kernels of `cases.py`, each run in a child process."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NAMES = [
    node.name
    for node in ast.parse((HERE / "cases.py").read_text(encoding="utf-8")).body
    if isinstance(node, ast.FunctionDef)
    and any(isinstance(d, ast.Name) and d.id == "case" for d in node.decorator_list)
]
needs_triton = pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ("triton", "torch", "numpy")),
    reason="needs triton, torch and numpy",
)


def child(*args: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    return subprocess.run(
        [sys.executable, "-W", "error", *args],
        capture_output=True,
        text=True,
        timeout=110,
        env=environment,
        check=False,
    )


@pytest.fixture(scope="session")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str | None]:
    done = child(str(HERE / "cases.py"))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@needs_triton
@pytest.mark.parametrize("name", NAMES)
def test_case(name: str, outcomes: dict[str, str | None]) -> None:
    if outcomes[name] is not None:
        pytest.fail(outcomes[name], pytrace=False)


COMPILING = """
import sys, triton, triton.language as tl
@triton.jit
def early(x_ptr): tl.store(x_ptr, 1)
"""


def script(folder: Path, body: str) -> str:
    """A file, since @triton.jit reads source."""
    path = folder / "script.py"
    path.write_text(COMPILING + body, encoding="utf-8")
    return str(path)


@needs_triton
def test_library_functions_decorated_to_compile_are_repaired(tmp_path: Path) -> None:
    body = """
from kernelhub import interpreter
interpreter.enable()
import torch
@triton.jit
def late(x_ptr, out_ptr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, N))
    tl.store(out_ptr, tl.max(x, axis=0) + x.sum(axis=0))
    tl.store(out_ptr + 1, tl.sum(tl.softmax(x), axis=0))
out = torch.zeros(2)
late[(1,)](torch.arange(4.0), out, N=4)
assert out.tolist() == [9.0, 1.0], out
try:
    early[(1,)](out)
except interpreter.NotInterpretable as error:
    assert "'early' was decorated to be compiled" in str(error)
    print("refused")
"""
    done = child(script(tmp_path, body))
    assert done.stdout == "refused\n", done.stderr


@needs_triton
def test_a_process_that_compiles_is_refused(tmp_path: Path) -> None:
    body = """
from kernel_builder.compile import driver
driver.use("sm_90")
from kernelhub import errors, interpreter
try:
    interpreter.enable()
except errors.LoadError as error:
    assert "TRITON_INTERPRET=1 before triton is first imported" in str(error)
    assert not interpreter.enabled()
    print("refused")
"""
    done = child(script(tmp_path, body))
    assert done.stdout == "refused\n", done.stderr


def test_importing_costs_no_heavy_module() -> None:
    code = (
        "import sys, kernelhub.interpreter as i; assert not i.enabled();"
        "print([m for m in ('numpy', 'torch', 'triton') if m in sys.modules])"
    )
    done = child("-c", code)
    assert done.stdout == "[]\n", done.stderr


def test_without_triton_the_extra_is_named(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['triton.runtime'] = None; sys.modules['triton'] = None\n"
        "import os\nfrom kernelhub import errors, interpreter\n"
        "try: interpreter.enable()\n"
        "except errors.MissingExtra as error: print(error.extra, 'TRITON_INTERPRET' in os.environ)"
    )
    done = child("-c", code)
    assert done.stdout == "triton False\n", done.stderr
