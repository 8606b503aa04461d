"""One sample project per fault; a sound one has none."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernel_builder.check import RULES, Report, check_project
from kernel_builder.check.report import NOTES
from kernel_builder.pack import build
from kernel_builder.project import Project
from kernelhub.errors import FormatError, InputError
from kernelhub.formats.tree import DeviceFacts, Leaf, Numeric, Split, Tree, render

from .sample import BUILD, INIT, project


def check(root: Path, **options: object) -> Report:
    return check_project(root, compiling=False, **options)  # type: ignore[arg-type]


def faults(
    tmp_path: Path, files: dict[str, str | bytes] | None = None, **options: str
) -> list[tuple[str | None, str | None, int | None]]:
    report = check(project(tmp_path / "p", files, **options))
    return [(p.code, p.path and p.path.removeprefix("torch-ext/scale_it/"), p.line)
            for p in report.faults]  # fmt: skip


def test_a_sound_project_has_no_findings(tmp_path: Path) -> None:
    report = check(project(tmp_path / "p"))
    assert (report.faults, report.notes) == ((), ())


SOUND = {
    "typing.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import einops\n",
    "guard.py": "try:\n    import einops\nexcept ImportError:\n    einops = None\n",
    "tuple.py": "try:\n    import einops\nexcept (ImportError, OSError):\n    einops = None\n",
    "stdlib.py": "import json, os.path\nfrom concurrent import futures\n",
    "tools.py": "import torch\nimport triton.language as tl\nfrom kernelhub import tunable\n",
    "relative.py": "from . import kernels, scale, __name__ as me\nfrom .kernels import double\n"
    "from .kernels import *\ntry:\n    from .later import x\nexcept ImportError:\n    x = None\n"
    "from ._ops import ops\n",
    "deep/er.py": "from ..kernels import double\nfrom . import er\nfrom .er import double as d\n",
    "lazy.py": "def __getattr__(name): return 1\nfrom .lazy import anything\n",
    "made.py": "globals().update(a=1)\nfrom .made import a\n",
    "self.py": "import sys\nsys.modules[__name__] = object()\nfrom .self import a\n",
    "set.py": "def f():\n    global late\n    late = 1\ndef g():\n    from .set import late\n",
    "branch.py": "import sys\nif sys:\n    a, *b = 1, 2\nfor c in b: pass\n"
    "with open('x') as d: pass\ndef f():\n    from .branch import a, b, c, d, sys\n",
    "prefixed.py": "from torch.library import custom_op\n"
    "from ._ops import add_op_namespace_prefix\n"
    "@custom_op(add_op_namespace_prefix('f'), mutates_args=())\n"
    "def f(x: int) -> int: return x\n"
    "@f.register_fake\n"
    "def _(x): return x\n"
    "@f.register_kernel('cuda')\n"
    "def _(x): return x\n",
    "cache.py": "import functools\nMZ = 1\n",
    "notes.txt": "MZ is how this text starts\n",
    "__pycache__/kernels.cpython-311.pyc": b"\x00",
}


@pytest.mark.parametrize("name", SOUND)
def test_what_is_allowed(tmp_path: Path, name: str) -> None:
    assert faults(tmp_path, {name: SOUND[name]}) == []


FAULTY: dict[str, tuple[dict[str, str | bytes], list[tuple[str, str, int | None]]]] = {
    "absolute imports, wherever they stand": (
        {
            "a.py": "def f():\n    import scale_it.kernels\n    from scale_it import kernels\n"
            "try:\n    import scale_it\nexcept ImportError: pass\n"
        },
        [("absolute-import", "a.py", n) for n in (2, 3, 5)],
    ),
    "undeclared imports": (
        {"a.py": "import einops\nfrom numpy.linalg import norm\ndef f():\n    import requests.x\n"},
        [("undeclared-import", "a.py", n) for n in (1, 2, 4)],
    ),
    "undeclared in the fallback of a guard": (
        {"a.py": "try:\n    import cupy\nexcept ImportError:\n    import numpy\n"},
        [("undeclared-import", "a.py", 4)],
    ),
    "a guard for something else": (
        {"a.py": "try:\n    import cupy\nexcept ValueError: pass\n"},
        [("undeclared-import", "a.py", 2)],
    ),
    "a module that not every declared Python has": (
        {"a.py": "import tomllib\nimport imp\n"},
        [("undeclared-import", "a.py", 1), ("undeclared-import", "a.py", 2)],
    ),
    "operators outside the namespace": (
        {
            "a.py": "import torch\nfrom torch.library import triton_op as t, Library\n"
            "@torch.library.custom_op('scale_it::f', mutates_args=())\ndef f(x: int) -> int: ...\n"
            "@t(f'{1}::g')\ndef g(): ...\n"
            "lib = Library('scale_it', 'DEF')\n"
            "torch.library.define('scale_it::h', '(int x) -> int')\n"
            "@torch.library.impl(lib, 'h')\ndef h(x): ...\n"
            "torch.library.register_fake('scale_it::f', lambda x: x)\n"
        },
        [("op-namespace", "a.py", n) for n in (3, 5, 7, 8, 11)],
    ),
    "an operator looked up by the package's name": (
        {
            "a.py": "import torch\nfrom torch import ops as o\ndef f(x):\n"
            "    return torch.ops.scale_it.foo(x) + o.scale_it.foo.default(x)\n"
            "y = torch.ops.aten.add\n"
        },
        [("op-namespace", "a.py", 4), ("op-namespace", "a.py", 4)],
    ),
    "importlib with the package's own name": (
        {
            "a.py": "import importlib\nfrom importlib import import_module as load\n"
            "importlib.import_module('scale_it.kernels')\nload(f'scale_it.{__name__}')\n"
            "__import__('scale_it' + '.kernels')\nload('json')\nload('.kernels', __package__)\n"
        },
        [("absolute-import", "a.py", n) for n in (3, 4, 5)],
    ),
    "relative imports of what is not there": (
        {
            "a.py": "from . import nothere, kernels\nfrom .nomod import y\n"
            "from .kernels import double, triple\nfrom .. import kernels\n"
            "def f():\n    from .b.c import ONE, TWO\nfrom ._ops import ops, op\n",
            "b/__init__.py": "",
            "b/c.py": "from ..kernels import halve\nfrom ...a import f\nONE = 1\n",
        },
        [
            *(("missing-import", "a.py", n) for n in (1, 2, 3, 4, 6, 7)),
            *(("missing-import", "b/c.py", n) for n in (1, 2)),
        ],
    ),
    "an operator decorator of unknown origin": (
        {
            "kernels.py": "double = custom_op = id\n",
            "a.py": "from .kernels import custom_op\n@custom_op('f')\ndef f(): ...\n",
        },
        [("op-namespace", "a.py", 2)],
    ),
    "no public names": ({"__init__.py": "def f(): ...\n"}, [("missing-all", "__init__.py", 1)]),
    "a public name that is not there": (
        {"__init__.py": '__all__ = ["f", "kernels",\n  "g"]\ndef f(): ...\n'},
        [("undefined-export", "__init__.py", 2)],
    ),
    "machine code under another name": (
        {"a.json": b"\x7fELF\x02\x01\x01" + bytes(64), "b.py": b"MZ\x90\0" + bytes(60)},
        [("native-file", "a.json", None), ("native-file", "b.py", None), ("not-utf8", "b.py", 1)],
    ),
    "native suffixes": (
        {"a.so": b"", "b.so.1": b"", "c.PYD": b"", "d.dylib": b""},
        [("native-file", name, None) for name in ("a.so", "b.so.1", "c.PYD", "d.dylib")],
    ),
    "bytecode without source": ({"a.pyc": b"\x00"}, [("bytecode", "a.pyc", None)]),
    "a huge module": (
        {"a.py": "#" * (1 << 20) + "\n"},
        [("oversized-file", "a.py", None)],
    ),
    "an author's own file where the build writes one": (
        {"_ops.py": "def mine(): ...\n", "sub/_ops.py": "x = 1\n"},
        [("reserved-name", "_ops.py", None)],
    ),
    "not UTF-8": ({"a.py": b"x = 1\ns = '\xff'\n"}, [("not-utf8", "a.py", 2)]),
    "syntax that no Python has": ({"a.py": "x = 1\ndef f(:\n"}, [("syntax", "a.py", 2)]),
    "syntax that is too new": (
        {"a.py": "try:\n    pass\nexcept* ValueError:\n    pass\n"},
        [("syntax", "a.py", None)],
    ),
    "a tree that is code, and evidence that is not JSON": (
        {"tuning/k.h200.py": "import os\n", "tuning/k.h200.json": '{"a": 1,\n oops}'},
        [("evidence", "tuning/k.h200.json", 2), ("tree", "tuning/k.h200.py", 1)],
    ),
}


@pytest.mark.parametrize("name", FAULTY)
def test_faults_have_their_place_and_a_remedy(tmp_path: Path, name: str) -> None:
    files, wanted = FAULTY[name]
    report = check(project(tmp_path / "p", files))
    found = [
        (p.code, p.path.removeprefix("torch-ext/scale_it/"), p.line)  # type: ignore[union-attr]
        for p in report.faults
    ]
    blank = {(code, path) for code, path, line in wanted if line is None}
    found = [(c, p, None if (c, p) in blank else line) for c, p, line in found]
    assert found == wanted
    assert all(p.hint for p in report.faults if p.code not in ("syntax",))


def test_every_fault_at_once(tmp_path: Path) -> None:
    build = BUILD.replace('name = "scale-it"', 'name = "scale-it"\nfoo = 1') + "[tuning]\nx = 1\n"
    files: dict[str, str | bytes] = {"a.py": "import einops, scale_it.kernels\n", "b.so": b""}
    found = {code for code, _, _ in faults(tmp_path, files, build=build)}
    assert {"absolute-import", "undeclared-import", "native-file"} < found
    report = check(tmp_path / "p")
    assert len([p for p in report.faults if p.path == "build.toml"]) >= 2


def test_declared_dependencies_are_fine(tmp_path: Path) -> None:
    source = {"a.py": "import einops, yaml, numpy\n"}
    build = BUILD.replace(
        'backends = ["cuda"]',
        'backends = ["cuda"]\ndependencies = ["PyYAML>=6", "numpy"]\npython-depends = ["einops"]',
    )
    assert faults(tmp_path, source, build=build) == []


def test_the_declared_python_decides(tmp_path: Path) -> None:
    new = {"a.py": "import tomllib\ntry:\n    pass\nexcept* ValueError:\n    pass\n"}
    build = BUILD + '[general.requires]\npython = ">=3.11"\n'
    assert faults(tmp_path, new, build=build) == []


def test_files_that_build_toml_names_must_be_there(tmp_path: Path) -> None:
    build = BUILD + '[tuning]\nworkloads = "tuning/workloads.py"\n'
    assert faults(tmp_path, build=build) == [("missing-workloads", "build.toml", None)]
    (tmp_path / "p/tuning").mkdir()
    (tmp_path / "p/tuning/workloads.py").write_text("")
    assert check(tmp_path / "p").faults == ()


@pytest.mark.parametrize(
    ("build", "at"),
    [
        (BUILD.replace('["cuda"]', "[]"), "general.backends"),
        (BUILD + "backends = []\n", "torch-noarch.backends"),
    ],
)
def test_a_framework_without_a_backend(tmp_path: Path, build: str, at: str) -> None:
    (fault,) = check(project(tmp_path / "p", build=build)).faults
    assert (fault.path, fault.at, fault.code) == ("build.toml", at, "no-backends")


def test_a_build_file_that_is_not_utf8(tmp_path: Path) -> None:
    root = project(tmp_path / "p")
    (root / "build.toml").write_bytes(BUILD.encode() + b"# \xff\n")
    (fault,) = check(root).faults
    assert (fault.path, fault.code, fault.line) == ("build.toml", "not-utf8", 10)


def test_hints_do_not_nest_brackets(tmp_path: Path) -> None:
    (fault,) = check(project(tmp_path / "p", {"a.py": "import einops\n"})).faults
    assert fault.hint is not None
    assert "(" not in fault.hint


def test_layout_faults_come_with_the_others(tmp_path: Path) -> None:
    root = project(tmp_path / "p", {"a.py": "import einops\n", "scale_it.py": "", "aux.py": ""})
    (root / "torch-ext/scale_it/link.py").symlink_to("kernels.py")
    bad_name = os.fsencode(root / "torch-ext/scale_it") + b"/\xff.py"
    Path(os.fsdecode(bad_name)).write_text("")
    report = check(root)
    text = "\n".join(map(str, report.faults))
    assert "undeclared-import" in {p.code for p in report.faults}
    for part in ("link.py", "scale_it/scale_it", "aux.py", "UTF-8"):
        assert part in text
    text.encode()  # can be printed


def test_a_project_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"build.toml|no folder"):
        check(tmp_path / "nowhere")


def test_a_jax_package_is_checked_as_well(tmp_path: Path) -> None:
    build = BUILD.replace("[torch-noarch]", "[jax-noarch]").replace("cuda", "tpu")
    root = project(tmp_path / "p", {"__init__.py": "import jax, numpy, torch\n__all__ = []\n"},
                   build=build)  # fmt: skip
    (root / "torch-ext").rename(root / "jax-ext")
    report = check(root)
    assert [(p.code, p.path) for p in report.faults] == [
        ("undeclared-import", "jax-ext/scale_it/__init__.py")
    ]


def tuned_files() -> dict[str, str]:
    """A tree of two leaves and its evidence, by their names."""
    device = {"name": "NVIDIA H200", "arch": "sm_90", "sm_count": 132, "memory": 1 << 37,
              "shared_memory": 232448}  # fmt: skip
    source = "sha256:" + "0" * 64
    configs = ({"BLOCK": 64}, {"BLOCK": 128})
    text = render(
        Tree(
            kernel="kernels.k", device=DeviceFacts(**device), tools={"triton": "3.6.0"},
            source_hash=source, features={"N": "int"}, configs=configs,
            root=Split(Numeric(("N",), 48.5), Leaf((0, 1)), Leaf((1, 0))),
        )
    )  # fmt: skip
    points = [
        {"id": f"sha256:{n:064x}", "case": f"N={n}", "features": {"N": n}, "choice": choice,
         "best_ms": 0.5, "cells": [{"config": c, "ms": 0.5} for c in (0, 1)]}
        for n, choice in ((32, 0), (64, 1))
    ]  # fmt: skip
    score = {"points": 2, "geomean": 1.0, "worst": 1.0}
    evidence = {
        "schema": 1, "kernel": "kernels.k", "source": source, "device": device, "tools": {},
        "policy": {}, "goal": {"max_slowdown": 1.1, "max_configs": 8, "met": True}, "fit": {},
        "scores": dict.fromkeys(
            ("fitted", "held_out", "leave_one_shape_out", "single_best"), score
        ),
        "configs": configs, "points": points,
    }  # fmt: skip
    name = "tuning/kernels.k.nvidia-h200"
    return {f"{name}.py": text, f"{name}.json": json.dumps(evidence)}


def test_a_good_tree_and_its_name(tmp_path: Path) -> None:
    files = tuned_files()
    text = files["tuning/kernels.k.nvidia-h200.py"]
    root = project(tmp_path / "p", {**files, "tuning/other.py": text})
    report = check(root)
    assert [(p.code, p.path) for p in report.faults] == [
        ("tree-name", "torch-ext/scale_it/tuning/other.py")
    ]
    assert [p.code for p in report.notes] == ["tree-alone"]


@pytest.mark.parametrize(
    ("suffix", "edit", "code"),
    [
        ("py", lambda text: text.replace("48.5", "80.5"), "tree-evidence"),
        ("py", lambda text: text.replace("(0, 1)", "(1, 0)"), "tree-evidence"),
        ("py", lambda text: text.replace('"BLOCK": 64', '"BLOCK": 32'), "tree-evidence"),
        ("py", lambda text: text.replace("0" * 64, "1" * 64), "tree-evidence"),
        ("py", lambda text: text + "import os\n", "tree"),
        ("py", lambda text: text[: len(text) // 2], "tree"),
        ("json", lambda text: text.replace("NVIDIA H200", "NVIDIA H100"), "tree-evidence"),
        ("json", lambda text: text.replace('"choice": 1', '"choice": 0'), "tree-evidence"),
        ("json", lambda text: text[: len(text) // 2], "evidence"),
        ("json", lambda text: "{}", "evidence"),
    ],
)
def test_edited_tuning_files_are_neither_passed_nor_packed(
    tmp_path: Path, suffix: str, edit: Callable[[str], str], code: str
) -> None:
    files = tuned_files()
    name = f"tuning/kernels.k.nvidia-h200.{suffix}"
    changed = edit(files[name])
    assert changed != files[name]
    root = project(tmp_path / "p", {**files, name: changed})
    assert {p.code for p in check(root).faults} == {code}
    with pytest.raises(FormatError) as caught:
        build(Project.open(root))
    assert {p.code for p in caught.value.problems} == {code}
    assert not (root / "build").exists()


def test_the_table_covers_every_code() -> None:
    codes = [code for rule in RULES for code in (*rule.faults, *rule.notes)]
    assert len(codes) == len(set(codes))
    assert all(text.strip().endswith(".") for rule in RULES for text in rule.faults.values())
    wanted = {code for _, expected in FAULTY.values() for code, _, _ in expected}
    assert wanted - {"reserved-name"} <= set(codes)  # that one is a fault of opening a project
    assert wanted.isdisjoint(NOTES)


def test_problems_are_json(tmp_path: Path) -> None:
    report = check(project(tmp_path / "p", {"a.py": "import einops\n"}))
    json.dumps([(p.path, p.line, p.column, p.code, p.hint) for p in report.faults])


snippets = st.sampled_from(
    ["import scale_it.x", "from . import *", "__all__ = [*x]", "__all__ += y",
     "@f(\nx)\ndef g(): 0",
     "try:", "\n", "    ", "except* E: pass", "match x:\n  case {**r}: 0", "\x00", "\ufeff", "é",
     "torch.library.define()", "torch.library.Library(f'{x}')", "import torch.library", "(" * 300,
     "from __future__ import x", "class A(B[0]): __all__ = 1", "\x0c", "\r", "lambda: (yield)"]
)  # fmt: skip


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(snippets, max_size=6).map("\n".join), st.booleans())
def test_no_text_breaks_the_checker(tmp_path: Path, text: str, init: bool) -> None:
    with tempfile.TemporaryDirectory(dir=tmp_path) as folder:
        root = project(Path(folder) / "p", {"__init__.py" if init else "a.py": text})
        report = check(root, repair=True)
        assert all(problem.code and problem.path for problem in report.faults)


def test_init_is_a_sound_module() -> None:
    compile(INIT, "__init__.py", "exec")
