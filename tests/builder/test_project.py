"""`Project.open`: what is packed, and every reason to refuse a project."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from kernel_builder.project import Project
from kernelhub.errors import FormatError, InputError


def codes(error: FormatError) -> set[str | None]:
    return {problem.code for problem in error.problems}


def test_lists_packed_files_sorted_and_tells_what_it_leaves_out(make_project):
    root = make_project(
        {
            "b.py": "",
            "a/z.py": "",
            "B/data.json": "{}",
            "tuning/k.dev.py": "",
            "tuning/k.dev.json": "{}",
            "notes.txt": "",
            ".hidden.py": "",
            "_ops.py": "# written by another builder",
            "__pycache__/a.cpython-311.pyc": "",
            "old.pyc": "",
        }
    )
    project = Project.open(root)
    assert project.files("torch") == (
        "B/data.json",
        "__init__.py",
        "a/z.py",
        "b.py",
        "tuning/k.dev.json",
        "tuning/k.dev.py",
    )
    assert project.packages["torch"].left_out == (".hidden.py", "notes.txt")
    assert project.package("torch") == root.resolve() / "torch-ext" / "my_relu"


def test_tuning_files_are_packed_whatever_pyext_says(sample):
    root = sample("triton-scale")
    tuning = root / "torch-ext" / "triton_scale" / "tuning"
    tuning.mkdir()
    (tuning / "scale.dev.json").write_text("{}")
    (tuning / "scale.dev.py").write_text("")
    assert set(Project.open(root).files("torch")) >= {
        "tuning/scale.dev.json",
        "tuning/scale.dev.py",
    }


def test_takes_the_path_of_build_toml(make_project):
    root = make_project()
    assert Project.open(root / "build.toml") == Project.open(root)


def test_missing_folder_and_missing_build_toml(tmp_path):
    with pytest.raises(InputError, match="no folder"):
        Project.open(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"holds no build\.toml") as caught:
        Project.open(tmp_path)
    assert "kernel-builder init" in str(caught.value)


def test_build_toml_that_is_not_utf8(make_project):
    root = make_project()
    (root / "build.toml").write_bytes(b"[general]\nname = '\xff'\n")
    with pytest.raises(FormatError, match="UTF-8"):
        Project.open(root)


@pytest.mark.skipif(sys.platform != "linux", reason="file names of Linux")
def test_all_faults_of_a_hostile_package_at_once(make_project):
    root = make_project({"Mod.py": "", "mod.py": "", "con.py": "", "a\\b.py": "", "my_relu.py": ""})
    package = root / "torch-ext" / "my_relu"
    (package / "__init__.py").unlink()
    (package / "link.py").symlink_to("/etc/passwd")
    (package / "dangling.json").symlink_to("nowhere")
    (package / "folder").symlink_to(root)
    os.mkfifo(package / "pipe.py")
    (Path(os.fsdecode(os.fsencode(package) + b"/n\xff.py"))).write_text("")
    with pytest.raises(FormatError) as caught:
        Project.open(root)
    assert codes(caught.value) == {
        "bad-name",
        "missing-init",
        "name-collision",
        "package-in-package",
        "special-file",
        "symlink",
    }
    text = str(caught.value)
    for name in ("link.py", "dangling.json", "folder", "pipe.py", "con.py", "a\\b.py", "n\\udcff"):
        assert name in text, name
    text.encode()  # printable on any stream


@pytest.mark.parametrize("pair", [("Sub/a.py", "sub/b.py"), ("stra\u00dfe.py", "STRASSE.py")])
def test_names_that_differ_only_for_some_file_systems(make_project, pair):
    root = make_project(dict.fromkeys(pair, ""))
    with pytest.raises(FormatError) as caught:
        Project.open(root)
    assert codes(caught.value) == {"name-collision"}


def test_symlinked_or_missing_package_folder(make_project, tmp_path):
    root = make_project()
    package = root / "torch-ext" / "my_relu"
    package.rename(tmp_path / "elsewhere")
    with pytest.raises(FormatError) as caught:
        Project.open(root)
    assert codes(caught.value) == {"missing-package"}
    package.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FormatError) as caught:
        Project.open(root)
    assert codes(caught.value) == {"symlink"}


def test_jax_package_may_not_hold_the_generated_torch_module(sample):
    root = sample("both-frameworks")
    (root / "jax-ext" / "both_frameworks" / "_ops.py").write_text("")
    with pytest.raises(FormatError) as caught:
        Project.open(root)
    assert codes(caught.value) == {"reserved-name"}
