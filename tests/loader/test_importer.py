"""The verified importer, through `get_local_kernel`: what runs is what was published."""

from __future__ import annotations

import importlib
import importlib.resources
import inspect
import os
import pickle
import pkgutil
import py_compile
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import published
import pytest

from kernelhub import get_loaded_kernels, get_local_kernel
from kernelhub.errors import (
    DependencyError,
    IntegrityError,
    LoadError,
    NoCompatibleVariant,
    NotFoundError,
)

PACKAGE = {
    "__init__.py": b"from .layers import scale\nfrom . import tables\n__all__ = ['scale']\n",
    "layers.py": b"from .tables.data import FACTOR\n\ndef scale(x):\n    return x * FACTOR\n",
    "tables/data.py": b"FACTOR = 3\n",  # a folder without __init__.py is a package too
    "tables/values.txt": b"7\n",
}


def write(root: Path, files: Mapping[str, bytes], **facts: object) -> Path:
    """A kernel's folder as the builder leaves it; gives the variant's folder."""
    for path, data in published.variant(files, **facts).items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)
    return root / "build" / str(facts.get("folder") or "torch-cpu")


def strays() -> list[str]:
    known = {kernel.module.__name__ for kernel in get_loaded_kernels()}
    ours = {name.partition(".")[0] for name in sys.modules if name.startswith("_kernelhub_")}
    return sorted(ours - known)


def test_modules_resources_and_sources(tmp_path: Path) -> None:
    folder = write(tmp_path, PACKAGE)
    kernel = get_local_kernel(tmp_path)
    assert kernel.scale(5) == 15
    assert kernel.__file__ == str(folder / "__init__.py")
    assert pickle.loads(pickle.dumps(kernel.scale))(2) == 6
    assert inspect.getsource(kernel.scale) == "def scale(x):\n    return x * FACTOR\n"
    resource = importlib.resources.files(kernel) / "tables" / "values.txt"
    assert resource.read_text() == "7\n"
    assert pkgutil.get_data(kernel.__name__, "tables/values.txt") == b"7\n"
    assert [m.name for m in pkgutil.iter_modules(kernel.__path__)] == ["layers"]
    assert importlib.import_module(f"{kernel.__name__}.layers").scale is kernel.scale
    assert get_local_kernel(folder) is kernel
    assert get_local_kernel(folder.parent) is kernel


def test_a_planted_pyc_is_not_executed_and_none_is_written(tmp_path: Path) -> None:
    folder = write(
        tmp_path, {"__init__.py": b"from .inner import X\n", "inner.py": b"X = 'good'\n"}
    )
    evil = tmp_path / "evil.py"
    evil.write_bytes(b"X = 'evil'\n")
    os.utime(evil, (folder / "inner.py").stat()[7:9])
    for name in ("inner", "__init__"):
        cached = importlib.util.cache_from_source(str(folder / f"{name}.py"))
        py_compile.compile(
            str(evil), cached, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
        )
    (folder / "inner.pyc").write_bytes(Path(cached).read_bytes())
    before = sorted(folder.rglob("*"))
    assert get_local_kernel(tmp_path).X == "good"
    assert sorted(folder.rglob("*")) == before


def test_a_stray_file_is_refused_and_one_that_comes_later_is_not_found(tmp_path: Path) -> None:
    folder = write(tmp_path, PACKAGE)
    kernel = get_local_kernel(tmp_path)
    (folder / "stray.py").write_bytes(b"raise SystemExit('stray code ran')\n")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(f"{kernel.__name__}.stray")
    with pytest.raises(IntegrityError) as caught:
        get_local_kernel(tmp_path)
    assert caught.value.faults == {"stray.py": "not part of what was published"}
    assert "kernel-builder build" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("path", "data", "fault"),
    [
        ("layers.py", b"evil = 1\n", "content differs"),
        ("tables/values.txt", b"8\n", "content differs"),
        ("tables/data.py", b"FACTOR", "content differs"),
        ("layers.py", None, "missing"),
    ],
)
def test_what_was_changed_is_refused(
    tmp_path: Path, path: str, data: bytes | None, fault: str
) -> None:
    folder = write(tmp_path, PACKAGE)
    if data is None:
        (folder / path).unlink()
    else:
        (folder / path).write_bytes(data)
    with pytest.raises(IntegrityError) as caught:
        get_local_kernel(tmp_path)
    assert list(caught.value.faults) == [path]
    assert caught.value.faults[path].startswith(fault)


def test_a_file_that_changes_between_verification_and_import(tmp_path: Path) -> None:
    """The kernel's own first module rewrites its second: the new bytes must not run."""
    files = {
        "__init__.py": b"from pathlib import Path\n"
        b"(Path(__file__).parent / 'second.py').write_text('RAN = True')\n"
        b"from . import second\n",
        "second.py": b"RAN = False\n",
    }
    write(tmp_path, files)
    with pytest.raises(IntegrityError, match="changed after it was verified"):
        get_local_kernel(tmp_path)
    assert strays() == []


def test_a_change_with_the_old_size_and_time_is_seen(tmp_path: Path) -> None:
    folder = write(tmp_path, PACKAGE)
    get_local_kernel(tmp_path)
    target = folder / "tables" / "data.py"
    state = target.stat()
    target.write_bytes(b"FACTOR = 4\n")
    os.utime(target, ns=(state.st_atime_ns, state.st_mtime_ns))
    with pytest.raises(IntegrityError):
        get_local_kernel(tmp_path)


def test_the_older_layout(tmp_path: Path) -> None:
    files = {f"demo_kernel/{path}": data for path, data in PACKAGE.items()}
    folder = write(tmp_path, files)
    kernel = get_local_kernel(tmp_path)
    assert kernel.scale(1) == 3
    assert kernel.__file__ == str(folder / "demo_kernel" / "__init__.py")


def test_no_package_at_all(tmp_path: Path) -> None:
    write(tmp_path, {"other.py": b""})
    with pytest.raises(LoadError, match=r"neither __init__\.py nor demo_kernel/__init__\.py"):
        get_local_kernel(tmp_path)


def test_a_folder_that_holds_no_kernel(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="holds no built kernel"):
        get_local_kernel(tmp_path)
    with pytest.raises(NotFoundError, match="is no folder"):
        get_local_kernel(tmp_path / "nowhere")


def test_without_a_digest_the_files_are_taken_as_they_are(tmp_path: Path) -> None:
    folder = write(tmp_path, PACKAGE, digest=False)
    first = get_local_kernel(tmp_path)
    (folder / "tables" / "data.py").write_bytes(b"FACTOR = 4\n")
    second = get_local_kernel(tmp_path)
    assert (first.scale(1), second.scale(1)) == (3, 4)


def test_two_versions_live_side_by_side(tmp_path: Path) -> None:
    kernels = []
    for number in (1, 2):
        files = {"__init__.py": b"from .inner import N\n", "inner.py": b"N = %d\n" % number}
        write(tmp_path / str(number), files, version=number)
        kernels.append(get_local_kernel(tmp_path / str(number)))
    assert [kernel.N for kernel in kernels] == [1, 2]
    assert [sys.modules[f"{k.__name__}.inner"].N for k in kernels] == [1, 2]


def test_many_threads_execute_it_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    files = {
        "__init__.py": b"import time\nwith open(%a, 'a') as f: f.write('x')\ntime.sleep(0.05)\n"
        % str(log)
    }
    write(tmp_path / "k", files)
    got: list[object] = []
    threads = [
        threading.Thread(target=lambda: got.append(get_local_kernel(tmp_path / "k")))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert log.read_text() == "x"
    assert len(got) == 8
    assert len(set(map(id, got))) == 1


@pytest.mark.parametrize(
    ("code", "kind", "texts"),
    [
        (
            b"import no_such_package_here\n",
            DependencyError,
            ["inner.py, line 1", "'no_such_package_here'", "does not declare"],
        ),
        (b"from . import gone\n", LoadError, ["inner.py, line 1", "ImportError"]),
        (b"from .gone import x\n", LoadError, ["its own module 'gone'", "not published"]),
        (b"\n\n1 / 0\n", LoadError, ["inner.py, line 3", "ZeroDivisionError"]),
        (b"def f(:\n", LoadError, ["inner.py", "SyntaxError"]),
        (b"\xff\xfe = 1\n", LoadError, ["SyntaxError"]),
    ],
)
def test_code_that_fails_leaves_nothing(
    tmp_path: Path, code: bytes, kind: type[LoadError], texts: list[str]
) -> None:
    files = {"__init__.py": b"from . import first\nfrom . import inner\n", "first.py": b""}
    write(tmp_path, {**files, "inner.py": code})
    for _ in range(2):
        with pytest.raises(kind) as caught:
            get_local_kernel(tmp_path)
        assert all(text in str(caught.value) for text in texts), str(caught.value)
        assert caught.value.__cause__ is not None
        assert strays() == []


def test_a_missing_package_that_was_declared_is_named_with_its_range(tmp_path: Path) -> None:
    write(tmp_path, PACKAGE, extension={"dependencies": ["tilelang>=0.1"]})
    with pytest.raises(NoCompatibleVariant, match=r"needs tilelang>=0\.1, which is not installed"):
        get_local_kernel(tmp_path)


def test_an_interrupt_leaves_nothing(tmp_path: Path) -> None:
    write(tmp_path, {"__init__.py": b"raise KeyboardInterrupt\n"})
    with pytest.raises(KeyboardInterrupt):
        get_local_kernel(tmp_path)
    assert strays() == []


def test_kernels_that_load_each_other_in_a_circle(tmp_path: Path) -> None:
    for here, there in (("a", "b"), ("b", "a")):
        code = (
            f"from kernelhub import get_local_kernel\nget_local_kernel({str(tmp_path / there)!r})"
        )
        write(tmp_path / here, {"__init__.py": code.encode()}, name=f"kernel-{here}")
    with pytest.raises(LoadError, match="in a circle") as caught:
        get_local_kernel(tmp_path / "a")
    text = str(caught.value)
    assert text.index(str(tmp_path / "a")) < text.index(str(tmp_path / "b"))
    assert strays() == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # jax, where another test imported it
def test_a_child_forked_during_an_import_can_load(tmp_path: Path) -> None:
    started = tmp_path / "started"
    code = f"import time, pathlib\npathlib.Path({str(started)!r}).touch()\ntime.sleep(0.5)\nX = 1\n"
    write(tmp_path / "slow", {"__init__.py": code.encode()})
    thread = threading.Thread(target=get_local_kernel, args=(tmp_path / "slow",))
    thread.start()
    while not started.exists():
        time.sleep(0.005)
    child = os.fork()
    if child == 0:
        os._exit(0 if get_local_kernel(tmp_path / "slow").X == 1 else 1)
    assert os.waitpid(child, 0)[1] == 0
    thread.join()


def test_sources_in_another_encoding(tmp_path: Path) -> None:
    write(tmp_path, {"__init__.py": "# -*- coding: latin-1 -*-\nX = 'é'\n".encode("latin-1")})
    assert get_local_kernel(tmp_path).X == "é"
