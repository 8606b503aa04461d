"""`--fix`: imports of the package itself become relative, and nothing else changes."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_builder.check import check_project
from kernel_builder.check.fix import rewrite
from kernel_builder.check.imports import own_imports
from kernel_builder.check.source import Module

from .sample import project


def module(text: str, name: str = "a.py") -> Module:
    return Module(path=name, name=name, text=text, tree=ast.parse(text))


REWRITTEN = {
    "from pkg import y": "from . import y",
    "from pkg.x import y": "from .x import y",
    "from pkg.x.z import (  # why\n    y,  # one\n    w as v,\n)": "from .x.z import (  # why\n"
    "    y,  # one\n    w as v,\n)",
    "from   pkg.x\\\n  import y": "from   .x\\\n  import y",
    "import pkg.x as z": "from . import x as z",
    "import pkg.x as x": "from . import x",
    "import pkg.x.y as z  # why": "from .x import y as z  # why",
    "import pkg.x\nprint(pkg.x.f(1))": "from . import x\nprint(x.f(1))",
    "import pkg.x.y\npkg.x.y.f()": "from .x import y\ny.f()",
    "s = 'ä'; import pkg.x; pkg.x.f('ö', pkg.x.g)": "s = 'ä'; from . import x; x.f('ö', x.g)",
    "import pkg.x\nimport pkg.w\npkg.w.f(pkg.x)": "from . import x\nfrom . import w\nw.f(x)",
    "import pkg.x, pkg.x\nfrom pkg import y": "import pkg.x, pkg.x\nfrom . import y",
    "try:\n\timport pkg.x as z\r\nexcept ImportError: pass\r\n": "try:\n\tfrom . import x as z\r\n"
    "except ImportError: pass\r\n",
}


@pytest.mark.parametrize("text", REWRITTEN)
def test_certain_rewrites(text: str) -> None:
    assert rewrite(module(text), "pkg") == REWRITTEN[text]


UNCERTAIN = [
    "import pkg",
    "import pkg as p",
    "import os, pkg.x as z",
    "import pkg.x\npkg.other()",
    "import pkg.x\npkg.x.f(x)",
    "import pkg.x\nx = 1\npkg.x.f()",
    "import pkg.x\ndef f(pkg): return pkg.x\npkg.x.f()",
    "import pkg.x\nfrom os.path import *\npkg.x.f()",
    "import pkg.x\npkg.x = 1",
    "import pkg.x\ndef f(a: 'pkg.x.T'): return pkg.x.f(a)",
    "import pkg.x\nimport pkg.y.x\npkg.x.f(pkg.y.x)",
    "def f():\n    import pkg.x\n    pkg.x.f()",
    "from pkg . x import y",
    "from .pkg import y\nfrom package import pkg\nimport pkgs.x as pkg2",
]


@pytest.mark.parametrize("text", UNCERTAIN)
def test_what_is_not_certain_stays(text: str) -> None:
    assert rewrite(module(text), "pkg") == text


@pytest.mark.parametrize(("name", "dots"), [("__init__.py", "."), ("a/__init__.py", ".."),
                                            ("a/b/c.py", "...")])  # fmt: skip
def test_depth_gives_the_dots(name: str, dots: str) -> None:
    text = "from pkg.x import y\nimport pkg.x as z\n"
    assert rewrite(module(text, name), "pkg") == (
        f"from {dots}x import y\nfrom {dots} import x as z\n"
    )


names = st.sampled_from(["alpha", "beta", "gamma"])
dotted = st.lists(names, min_size=0, max_size=3).map(lambda parts: ".".join(["pkg", *parts]))
statements = st.one_of(
    st.builds("from {} import {}".format, dotted, names),
    st.builds("from {} import ({} as w,  # why\n)".format, dotted, names),
    st.builds("import {} as {}".format, dotted, names),
    st.builds("import {}".format, dotted),
    st.builds("import {0}\nvalue = {0}.attribute  # ü".format, dotted),
    st.builds("def f():\n    from {} import {}".format, dotted, names),
    st.sampled_from(["x = 'pkg.alpha'", "# import pkg.alpha", "import os; y = 2", "'''\npkg\n'''"]),
)


@given(st.lists(statements, max_size=8).map("\n".join), st.sampled_from(["\n", "\r\n"]))
def test_rewriting_is_sound_and_done_once(text: str, ends: str) -> None:
    before = module(text.replace("\n", ends))
    after = module(rewrite(before, "pkg"))
    assert rewrite(after, "pkg") == after.text
    assert len(list(own_imports(after.tree, "pkg"))) <= len(list(own_imports(before.tree, "pkg")))  # type: ignore[arg-type]
    for first, second in zip(before.text.split(ends), after.text.split(ends), strict=True):
        assert first == second or "pkg" in first
        assert first.count("#") == second.count("#")


@given(st.lists(statements, max_size=6).map("\n".join))
def test_rewriting_binds_the_same_objects(text: str) -> None:
    """Both texts are resolved symbolically: each public name stands for the same module member."""
    before, after = module(text), module(rewrite(module(text), "pkg"))
    assert after.tree is not None
    assert before.tree is not None
    kept = {k: v for k, v in _bound(before.tree).items() if k != "pkg"}
    assert kept.items() <= _bound(after.tree).items()


def _bound(tree: ast.Module) -> dict[str, str]:
    found: dict[str, str] = {}
    for node in tree.body:
        if isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.name if alias.asname else alias.name.split(".")[0]
                found[alias.asname or name] = name
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(filter(None, ["pkg" if node.level else "", node.module]))
            for alias in node.names:
                found[alias.asname or alias.name] = f"{base}.{alias.name}"
    return found


def test_files_are_rewritten_and_reported(tmp_path: Path) -> None:
    source = "# kept\nfrom scale_it.kernels import double  # kept too\nimport scale_it\n"
    root = project(tmp_path / "p", {"sub/a.py": source, "sub/__init__.py": ""})
    path = root / "torch-ext/scale_it/sub/a.py"
    path.chmod(0o640)
    report = check_project(root, repair=True, compiling=False)
    assert report.fixed == ("torch-ext/scale_it/sub/a.py",)
    assert path.read_text() == "# kept\nfrom ..kernels import double  # kept too\nimport scale_it\n"
    assert path.stat().st_mode & 0o777 == 0o640
    assert [(p.code, p.line) for p in report.faults] == [("absolute-import", 3)]
    assert "cannot be rewritten" in (report.faults[0].hint or "")
    assert sorted(p.name for p in path.parent.iterdir()) == ["__init__.py", "a.py"]
    assert check_project(root, repair=True, compiling=False).fixed == ()
