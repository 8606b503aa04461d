"""Builds: the same bytes everywhere, and whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_builder import swap
from kernel_builder.ops import render_ops
from kernel_builder.pack import WORK, build, check_build
from kernel_builder.project import Project
from kernelhub.errors import FormatError, InputError, IntegrityError, StoreError
from kernelhub.formats.metadata import parse_metadata
from kernelhub.verify import verify_folder

SAMPLES = Path(__file__).parent / "samples"


def content(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        path.relative_to(folder).as_posix(): (path.stat().st_mode & 0o777, path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def metadata(variant: Path) -> dict[str, object]:
    loaded = json.loads((variant / "metadata.json").read_bytes())
    assert isinstance(loaded, dict)
    return loaded


def run_build(root: Path, **options: object) -> subprocess.Popen[str]:
    code = "from kernel_builder.cli import main; main()"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    return subprocess.Popen(
        [sys.executable, "-c", code, "build", os.fspath(root)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,  # type: ignore[call-overload]
    )


def test_same_bytes_in_another_place_umask_order_and_time(make_project, monkeypatch):
    files = {"z.py": "a\r\nb\r\n", "a/b.json": "{}", "data.bin": os.urandom(3_000_000)}
    first = make_project(files, folder="one")
    second = make_project({"data.bin": files["data.bin"], **files}, folder="elsewhere/two")
    for path in second.rglob("*"):
        os.utime(path, (1, 1))
    (second / "torch-ext" / "my_relu" / "z.py").chmod(0o777)
    build(Project.open(first))
    monkeypatch.chdir(second)
    old = os.umask(0o077)
    try:
        build(Project.open("."))
    finally:
        os.umask(old)
    assert content(first / "build") == content(second / "build")
    assert (first / "build" / "torch-cpu" / "z.py").read_bytes() == b"a\r\nb\r\n"
    assert {mode for mode, _ in content(first / "build").values()} == {0o644}
    assert {p.stat().st_mode & 0o777 for p in (second / "build").rglob("*") if p.is_dir()} == {
        0o755
    }


@settings(max_examples=settings.default.max_examples // 4)
@given(
    st.dictionaries(
        st.from_regex(r"[a-z]{1,3}(/[a-z]{1,3})?\.(py|json)", fullmatch=True),
        st.binary(max_size=40),
        max_size=5,
    )
)
def test_every_build_verifies_and_depends_on_content_only(tmp_path_factory, files):
    built = []
    for _ in range(2):
        root = tmp_path_factory.mktemp("project")
        package = root / "torch-ext" / "ab"
        names = {name: data for name, data in files.items() if not name.startswith("ab")}
        toml = (SAMPLES / "fused-relu" / "build.toml").read_text().replace("fused-relu", "ab")
        root.joinpath("build.toml").write_text(toml)
        sources = {n: b"# " + d.hex().encode() for n, d in names.items() if n.endswith(".py")}
        for name, data in {**names, **sources, "__init__.py": b""}.items():
            (package / name).parent.mkdir(parents=True, exist_ok=True)
            (package / name).write_bytes(data)
        project = Project.open(root)
        build(project)
        built.append(content(root / "build"))
        for variant in (root / "build").iterdir():
            verify_folder(variant, parse_metadata((variant / "metadata.json").read_bytes()))
        check_build(project)
    assert built[0] == built[1]


def test_variants_share_ops_and_differ_in_metadata_only(sample):
    root = sample("fused-relu")
    built = build(Project.open(root))
    names = [variant.name for variant in built.variants]
    assert names == ["torch-cpu", "torch-cuda", "torch-rocm"]
    trees = [content(root / "build" / name) for name in names]
    documents = [metadata(root / "build" / name) for name in names]
    for tree in trees:
        del tree["metadata.json"]
    assert trees[0] == trees[1] == trees[2]
    assert "_ops.py" in trees[0]
    assert "scales.json" in trees[0]
    uid = str(documents[0]["id"]).rsplit("_", 1)[1]
    assert [d["id"] for d in documents] == [
        f"_fused_relu_{name}_{uid}" for name in ("cpu", "cuda", "rocm")
    ]
    assert [d["backend"] for d in documents] == [
        {"type": "cpu"},
        {"type": "cuda", "archs": ["8.0", "9.0"]},
        {"type": "rocm"},
    ]


def test_metadata_of_both_frameworks(sample):
    root = sample("both-frameworks")
    build(Project.open(root))
    variants = sorted(path.name for path in (root / "build").iterdir())
    assert variants == ["jax-cpu", "jax-tpu", "torch-cpu", "torch-cuda"]
    assert not (root / "build" / "jax-tpu" / "_ops.py").exists()
    assert (root / "build" / "torch-cpu" / "_ops.py").exists()
    jax, torch = metadata(root / "build" / "jax-cpu"), metadata(root / "build" / "torch-cpu")
    assert jax["id"] != torch["id"]
    assert jax["kernelhub"] == {
        "schema": 1,
        "framework": "jax",
        "languages": ["pallas"],
        "requires": {"jax": ">=0.8", "python": ">=3.10"},
        "dependencies": ["einops>=0.7", "ml_dtypes"],
    }
    assert torch["kernelhub"]["requires"] == {"python": ">=3.10", "torch": ">=2.6"}
    assert torch["python-depends"] == ["einops"]  # of ours, what HF's client knows
    assert torch["kernels-minver"] == "0.14.0"


def test_kernel_dependencies_raise_the_least_client(sample):
    root = sample("triton-scale")
    build(Project.open(root))
    document = metadata(root / "build" / "torch-xpu")
    assert document["kernels-minver"] == "0.17.0"
    assert document["kernel-depends"] == [{"repo-id": "demo/fused-relu", "version": 1}]
    assert document["kernelhub"]["languages"] == ["triton"]  # type: ignore[index]


def test_a_change_of_any_byte_changes_the_id(make_project):
    root = make_project({"data.bin": b"1"})
    build(Project.open(root))
    before = metadata(root / "build" / "torch-cpu")["id"]
    (root / "torch-ext" / "my_relu" / "data.bin").write_bytes(b"2")
    build(Project.open(root))
    assert metadata(root / "build" / "torch-cpu")["id"] != before


def test_rebuilding_removes_what_is_gone(make_project):
    root = make_project({"old.py": ""})
    build(Project.open(root))
    make_project(backends=("cpu",))
    (root / "torch-ext" / "my_relu" / "old.py").unlink()
    build(Project.open(root))
    assert set(content(root / "build")) == {
        "torch-cpu/__init__.py",
        "torch-cpu/_ops.py",
        "torch-cpu/metadata.json",
    }


def test_refuses_to_replace_what_no_build_wrote(make_project):
    root = make_project()
    (root / "build" / "lib").mkdir(parents=True)
    (root / "build" / "thesis.txt").write_text("precious")
    with pytest.raises(InputError, match=r"lib, thesis\.txt"):
        build(Project.open(root))
    assert (root / "build" / "thesis.txt").read_text() == "precious"
    build(Project.open(root), root / "other")
    assert (root / "other" / "torch-cpu" / "metadata.json").is_file()


def test_a_project_without_backends_has_nothing_to_build(make_project):
    root = make_project(backends=())
    with pytest.raises(InputError, match="nothing to build"):
        build(Project.open(root))
    assert not (root / "build").exists()


def test_output_that_is_a_link_or_a_file(make_project, tmp_path):
    project = Project.open(make_project())
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "file").write_text("precious")
    for name in ("link", "file"):
        with pytest.raises(InputError, match="not a folder"):
            build(project, tmp_path / name)
    assert (tmp_path / "file").read_text() == "precious"


def test_checks_that_a_build_is_there_fresh_and_whole(make_project):
    root = make_project()
    project = Project.open(root)
    with pytest.raises(InputError, match="holds no build"):
        check_build(project)
    build(project)
    check_build(project)
    ops = root / "build" / "torch-cuda" / "_ops.py"
    whole = ops.read_bytes()
    ops.write_bytes(whole + b"#")
    with pytest.raises(IntegrityError, match="changed after it was built") as caught:
        check_build(project)
    assert "_ops.py" in caught.value.faults
    ops.write_bytes(whole)
    (root / "build" / "torch-cpu" / "extra.py").write_text("")
    with pytest.raises(IntegrityError, match=r"extra\.py"):
        check_build(project)
    (root / "build" / "torch-cpu" / "extra.py").unlink()
    make_project({"new.py": ""}, backends=("cpu", "rocm"))
    with pytest.raises(InputError, match="torch-rocm is not built; torch-cuda is no longer"):
        check_build(Project.open(root))


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="needs to mount a small disk")
def test_full_disk_leaves_the_previous_build(make_project, tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(small)], capture_output=True
    )
    if mounted.returncode != 0:
        pytest.skip("may not mount")
    try:
        root = make_project({"data.bin": b"1" * 100_000})
        build(Project.open(root), small / "out")
        before = content(small / "out")
        make_project({"data.bin": b"2" * 900_000})
        with pytest.raises(StoreError, match="No space left"):
            build(Project.open(root), small / "out")
        assert content(small / "out") == before
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_without_an_exchanging_rename(make_project, monkeypatch):
    monkeypatch.setattr(swap, "_FUNCTION", {})
    root = make_project()
    build(Project.open(root))
    make_project({"new.py": ""})
    build(Project.open(root))
    check_build(Project.open(root))
    assert not (root / WORK / "previous").exists()


def test_recovers_a_build_that_was_moved_aside(make_project):
    root = make_project()
    project = Project.open(root)
    build(project)
    (root / "build").rename(root / WORK / "previous")  # a process ended between the two steps
    check_build(project)
    assert (root / "build").is_dir()


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("seed", range(6))
def test_killed_at_any_instant_leaves_one_whole_build(make_project, seed):
    root = make_project({f"f{i}.bin": os.urandom(300_000) for i in range(20)})
    build(Project.open(root))
    old = content(root / "build")
    (root / "torch-ext" / "my_relu" / "f0.bin").write_bytes(b"new")
    expected = root / "expected"
    build(Project.open(root), expected)
    new = content(expected)
    shutil.rmtree(expected)
    process = run_build(root)
    work = root / WORK
    deadline = time.monotonic() + 20
    while not any(work.glob("staging-*/torch-cpu")) and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    time.sleep(seed * 0.008)
    process.kill()
    process.communicate()
    assert content(root / "build") in (old, new)
    build(Project.open(root))
    assert content(root / "build") == new
    assert not any(work.glob("staging-*"))


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupt_leaves_the_previous_build_and_no_leftovers(make_project, sent, code):
    root = make_project()
    build(Project.open(root))
    old = content(root / "build")
    make_project({f"f{i}.bin": os.urandom(2_000_000) for i in range(40)})
    process = run_build(root)
    while not any((root / WORK).glob("staging-*")) and process.poll() is None:
        time.sleep(0.001)
    process.send_signal(sent)
    _, said = process.communicate(timeout=30)
    assert process.returncode == code, said
    assert "Traceback" not in said
    assert content(root / "build") == old
    assert not any((root / WORK).glob("staging-*"))


def test_sources_that_do_not_parse_are_all_named(make_project):
    root = make_project({"a.py": "def (", "b.py": b"x = '\xff'\n", "c.py": "ok = 1\n"})
    with pytest.raises(FormatError) as caught:
        build(Project.open(root))
    assert {problem.path for problem in caught.value.problems} == {
        "torch-ext/my_relu/a.py",
        "torch-ext/my_relu/b.py",
    }
    assert not (root / "build").exists()


def test_a_refused_output_leaves_nothing_beside_it(make_project, tmp_path):
    precious = tmp_path / "place" / "precious"
    precious.mkdir(parents=True)
    (precious / "thesis.txt").write_text("x")
    with pytest.raises(InputError, match="no build wrote"):
        build(Project.open(make_project()), precious)
    assert [entry.name for entry in precious.parent.iterdir()] == ["precious"]


@pytest.mark.parametrize("text", ["def helper(): ...\n", "ops = 1\nTABLE: int = 3\n", "def (\n"])
def test_an_author_s_own_ops_module_is_not_lost(make_project, text):
    with pytest.raises(FormatError, match="would be replaced"):
        Project.open(make_project({"_ops.py": text}))


def test_a_generated_ops_module_in_the_sources_is_fine(make_project):
    Project.open(make_project({"_ops.py": render_ops("my_relu", "0").decode()}))
