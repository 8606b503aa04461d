"""Which edits of a kernel's source make its trees stale."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

from kernelhub.dispatch import find_tunables

OLD = Path(__file__).parent / "samples"


def hash_of(tmp_path: Path, monkeypatch, name: str, *edits: tuple[str, str]) -> str:
    text = (OLD / "ops.py").read_text()
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    folder = tmp_path / name
    folder.mkdir()
    (folder / "__init__.py").write_text("from . import ops\n")
    (folder / "ops.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    try:
        return find_tunables(importlib.import_module(name))["ops.scale"].source_hash()
    finally:
        for module in [m for m in sys.modules if m.partition(".")[0] == name]:
            del sys.modules[module]


@pytest.mark.parametrize(
    ("edit", "stale"),
    [
        (("* scale\n", "* scale + 0\n"), True),
        (("return value * SCALE", "return value + SCALE"), True),  # a function that it calls
        (("tl.constexpr(2)", "tl.constexpr(3)"), True),  # a constant that it compiles in
        (("# Called by the kernels below.", "# Other words."), False),
        (("    if FLAG:\n", "    # why\n\n    if FLAG:  # flag\n"), False),
        (('"""Autotuned kernels."""', '"""Moved\n\n\ndown."""'), False),
        (("blocks(128, 256, 512)", "blocks(128, 256, 512, 1024)"), False),  # more configurations
        (("def middle(x, out, BLOCK", "def middle(x,  out, BLOCK"), False),  # another kernel
    ],
)
def test_what_makes_a_tree_stale(tmp_path, monkeypatch, edit, stale) -> None:
    before = hash_of(tmp_path, monkeypatch, "identity_before")
    after = hash_of(tmp_path, monkeypatch, "identity_after", edit)
    assert (before != after) is stale


def test_functions_with_their_alternatives(package) -> None:
    functions = find_tunables(package)
    assert functions["functions.scan"].source_hash() != functions["functions.area"].source_hash()
    assert functions["functions.scan"].source_hash() == functions["functions.scan"].source_hash()
