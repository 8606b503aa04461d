"""What is read off sources without importing them: languages, the public interface, breaks."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_builder.api import find_breaks, public_functions, public_names
from kernel_builder.languages import detect_languages
from kernel_builder.ops import render_ops, stand_in_for_ops
from kernelhub.errors import InputError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import torch", ("torch",)),
        ("import torch, triton", ("triton",)),
        ("import triton.language as tl", ("triton",)),
        ("from triton.experimental import gluon", ("gluon",)),
        ("from triton.experimental.gluon import language as gl", ("gluon",)),
        ("from jax.experimental import pallas as pl", ("pallas",)),
        ("from jax.experimental.pallas import tpu", ("pallas",)),
        ("import jax", ()),
        ("def f():\n    import helion\n", ("helion",)),
        ("from .triton import x\nimport tritonclient", ()),
        ("import triton\nfrom jax.experimental import pallas", ("triton", "pallas")),
        ("this is not python", ()),
        ("x = '\0'", ()),
    ],
)
def test_languages(text, expected):
    assert detect_languages([text]) == expected


def package(root: Path, **modules: str) -> Path:
    folder = root / "pkg"
    folder.mkdir(parents=True)
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text)
    return folder


OLD = """
import torch
def f(x: torch.Tensor, eps: float = 1e-5, *, out=None) -> torch.Tensor:
    '''Do f.

    At length.'''
def g(a, b, /, c=1, *args, d, **kw): ...
class Layer(torch.nn.Module):
    '''A layer.'''
    def __init__(self, n, m=2): ...
    def forward(self, x): ...
def hidden(): ...
"""
INIT = "from .mod import *\nfrom .mod import f, g, Layer\nfrom ._ops import ops\nLIMIT = 3\n"


def test_public_interface(tmp_path):
    init = f"{INIT}__all__ = ['f', 'g', 'Layer', 'LIMIT']"
    folder = package(tmp_path, __init__=init, mod=OLD)
    assert public_names(folder) == ("LIMIT", "Layer", "f", "g")
    found = [(f.signature, f.summary) for f in public_functions(folder)]
    assert found == [
        ("Layer(n, m=2)", "A layer."),
        ("f(x: torch.Tensor, eps: float = 1e-05, *, out=None) -> torch.Tensor", "Do f."),
        ("g(a, b, /, c=1, *args, d, **kw)", ""),
    ]


def test_reading_runs_nothing(tmp_path):
    trap = tmp_path / "trap"
    folder = package(
        tmp_path,
        __init__=f"open({str(trap)!r}, 'w')\n__all__ = ['f']\nraise SystemExit\ndef f(): ...\n",
    )
    assert public_names(folder) == ("f",)
    assert find_breaks(folder, folder) == ()
    assert not trap.exists()


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("", ""), []),
        (("hidden(", "renamed("), []),
        (("LIMIT = 3", "LIMIT = 4"), []),
        (("*, out=None)", "*, out=None, more=1)"), []),
        (("def f(x: torch.Tensor, ", "def f(x, "), []),
        (("'g', ", ""), ["g: is no longer public"]),
        (("def f(", "def f(scale, "), ["f: parameter was added as required (scale)"]),
        (("eps: float = 1e-5", "eps: float = 1e-6"), ["f: parameter default was changed (eps)"]),
        (("*, out=None", "*"), None),
        ((", *, out=None", ""), ["f: parameter was removed (out)"]),
        (("m=2", "m"), ["Layer.__init__: parameter is now required (m)"]),
        (
            ("def forward(self, x)", "def other(self, x)"),
            ["Layer.forward: public object was removed"],
        ),
        (("(torch.nn.Module)", ""), ["Layer: base class was removed"]),
    ],
)
def test_breaks_are_named(tmp_path, change, expected):
    modules = {"__init__": f"{INIT}__all__ = ['f', 'g', 'Layer', 'LIMIT']", "mod": OLD}
    changed = {name: text.replace(*change) if change[0] else text for name, text in modules.items()}
    old, new = package(tmp_path / "old", **modules), package(tmp_path / "new", **changed)
    if expected is None:
        with pytest.raises(InputError, match="cannot read the public interface"):
            find_breaks(old, new)
        return
    found = [str(item) for item in find_breaks(old, new)]
    assert len(found) >= len(expected)
    assert len(found) == len(expected) or "moved" in str(found)
    for start in expected:
        assert any(item.startswith(start) for item in found), found


def test_generated_ops_give_a_namespace_of_the_build(tmp_path):
    (tmp_path / "_ops.py").write_bytes(render_ops("my_kernel", "0123456789ab"))
    code = "import _ops; print(_ops.add_op_namespace_prefix('f'), _ops.ops.name)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    qualified, namespace = done.stdout.split()
    assert qualified == f"{namespace}::f"
    assert namespace.startswith("_my_kernel_")
    assert namespace.endswith("_0123456789ab")


def test_a_package_that_was_not_built_needs_torch_for_its_operators_only(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)  # an import of it fails
    monkeypatch.delitem(sys.modules, "unbuilt._ops", raising=False)
    stand_in_for_ops("unbuilt", tmp_path)
    ops = importlib.import_module("unbuilt._ops")
    assert ops.add_op_namespace_prefix("f") == "_unbuilt_unbuilt::f"
    assert not hasattr(ops, "other")
    with pytest.raises(ImportError):
        _ = ops.ops
    sys.modules.pop("unbuilt._ops")
