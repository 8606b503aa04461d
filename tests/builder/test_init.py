"""Generated projects: they build, check and pass their own tests as they are written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from kernel_builder.init import LANGUAGES, start_project
from kernel_builder.pack import build
from kernel_builder.project import Project
from kernelhub.errors import FormatError, InputError


@pytest.mark.parametrize(
    "language", ["triton", "pallas", pytest.param("torch", marks=pytest.mark.slow)]
)
def test_generated_project_builds_and_passes_its_tests(tmp_path, language):
    framework = "jax" if language == "pallas" else "torch"
    pytest.importorskip(framework)
    root = start_project("my-gate", language, tmp_path / "gate")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(str(Path(p).resolve()) for p in sys.path if p),
        "JAX_PLATFORMS": "cpu",
    }
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir=."],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" in done.stdout
    variants = {path.name for path in (root / "build").iterdir()}
    assert variants == {f"{framework}-{backend}" for backend in LANGUAGES[language].backends}


@pytest.mark.parametrize("language", LANGUAGES)
def test_generated_files_are_complete(tmp_path, language):
    root = start_project("my-gate", language, tmp_path / "gate")
    project = Project.open(root)
    built = build(project)
    assert built.left_out == ()
    files = {p.relative_to(root).as_posix(): p for p in root.rglob("*") if p.is_file()}
    for name, path in files.items():
        if not name.startswith((".kernel-builder/", "build/")):
            assert not set(path.read_text().split("@")) & {"NAME", "SUMMARY", "TABLE"}, name
    schema, *_ = (root / "build.toml").read_text().splitlines()
    assert schema.removeprefix("#:schema ./") in files
    workflow = yaml.safe_load(files[".github/workflows/kernel.yml"].read_text())
    assert workflow["jobs"].keys() == {"test", "publish"}
    assert ".kernel-builder/" in files[".gitignore"].read_text()
    assert "bfloat16" in files["tests/test_kernel.py"].read_text()


def test_the_how_to_shows_the_generated_workflow(tmp_path):
    root = start_project("my-gate", "triton", tmp_path / "gate")
    _, workflow = (root / ".github/workflows/kernel.yml").read_text().split("name: kernel\n")
    how_to = Path(__file__).parents[2] / "docs" / "how-to" / "publish-from-ci.md"
    assert f"```yaml\nname: kernel\n{workflow}```" in how_to.read_text()


def test_makes_the_folder_or_fills_an_empty_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert start_project("my-gate", "torch") == tmp_path / "my-gate"
    (tmp_path / "empty").mkdir()
    start_project("my-gate", "torch", tmp_path / "empty")
    assert (tmp_path / "empty" / "build.toml").is_file()


def test_never_writes_into_what_is_there(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes").write_text("precious")
    with pytest.raises(InputError, match="not empty"):
        start_project("my-gate", "torch", tmp_path / "mine")
    with pytest.raises(InputError, match="not a folder"):
        start_project("my-gate", "torch", tmp_path / "mine" / "notes")
    assert [path.name for path in tmp_path.rglob("*")] == ["mine", "notes"]


@pytest.mark.parametrize(
    "name", ["My-Gate", "1st", "a", "class", "../up", "torch", "my_gate", "", "nul", "con"]
)
def test_names_that_no_kernel_can_have(tmp_path, name):
    with pytest.raises(FormatError):
        start_project(name, "torch", tmp_path / "x")
    assert list(tmp_path.iterdir()) == []
