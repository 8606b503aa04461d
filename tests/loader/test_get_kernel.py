"""`get_kernel` and `has_kernel` against the embedded Hub, with its requests counted."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import published
import pytest

import kernelhub
from kernelhub import get_kernel, get_loaded_kernels, has_kernel, settings
from kernelhub.errors import (
    HubUnavailable,
    InputError,
    IntegrityError,
    LoadError,
    NoCompatibleVariant,
    NotCached,
    NotFoundError,
    RepositoryNotFound,
    RequirementError,
    StoreError,
    TrustError,
    VersionNotFound,
)
from kernelhub.loader import LoadedKernel
from kernelhub.reporter import Reporter
from kernelhub.serve.testing import RunningHub, running_hub
from kernelhub.settings import scope
from kernelhub.trust import Consent

Publish = Callable[..., str]
Mount = Callable[[str], Path]
TRUST = {"trust_remote_code": True}


def numbered(number: int) -> dict[str, bytes]:
    return published.variant({"__init__.py": b"NUMBER = %d\n" % number}, version=number)


def eight_files(seed: int = 0) -> dict[str, bytes]:
    files = {f"m{n}.py": b"N = %d + %d\n" % (n, seed) for n in range(6)}
    return published.variant({"__init__.py": b"from .m5 import N\n", **files})


def forget() -> None:
    """What a new process would not know."""
    from kernelhub import freshness, resolution, verify

    freshness._asked_here.clear()
    resolution._told.clear()
    verify._verified.clear()


def last_loaded() -> LoadedKernel:
    """The newest one that is in this test's cache; kernels of other tests stay loaded."""
    cache = settings.current().cache
    return [k for k in get_loaded_kernels() if cache in k.folder.parents][-1]


def cached_folder() -> Path:
    return last_loaded().folder


def test_requests_of_a_cold_load_and_of_warm_ones(hub: RunningHub, publish: Publish) -> None:
    commit = publish("demo/k", eight_files())
    kernel = get_kernel("demo/k", version=1, **TRUST)
    assert kernel.N == 5
    assert len(published.asked(hub)) == 10
    assert all(r.method == "GET" for r in hub.requests)
    hub.clear()
    assert get_kernel("demo/k", 1, **TRUST) is kernel
    assert published.asked(hub) == ["/api/kernels/demo/k/refs"]
    hub.clear()
    for pinned in ({"repo_id": f"demo/k@{commit}"}, {"repo_id": "demo/k", "revision": commit}):
        assert get_kernel(**pinned, **TRUST) is kernel
    assert published.asked(hub) == []


@pytest.mark.parametrize(
    ("arguments", "number"),
    [
        ({"repo_id": "demo/k"}, 3),
        ({"repo_id": "demo/k==1"}, 1),
        ({"repo_id": "demo/k>=1,<3"}, 2),
        ({"repo_id": "demo/k", "version": 2}, 2),
        ({"repo_id": "demo/k", "version": "2"}, 2),
        ({"repo_id": "demo/k", "version": "<3"}, 2),
        ({"repo_id": "demo/k", "version": 0}, 0),
        ({"repo_id": "demo/k", "revision": "v2"}, 2),
        ({"repo_id": "demo/k@v1"}, 1),
        ({"repo_id": "demo/k<1"}, 0),
    ],
)
def test_pins(publish: Publish, arguments: dict[str, object], number: int) -> None:
    for version in range(4):
        publish("demo/k", numbered(version), version=version)
    assert number == get_kernel(**arguments, **TRUST).NUMBER


def test_no_pin_says_once_what_was_taken(
    publish: Publish, caplog: pytest.LogCaptureFixture
) -> None:
    forget()
    publish("demo/unpinned", numbered(0), version=0)
    commit = publish("demo/unpinned", numbered(4), version=4)
    with caplog.at_level(logging.WARNING, "kernelhub"):
        get_kernel("demo/unpinned", **TRUST)
        get_kernel("demo/unpinned", **TRUST)
    (record,) = caplog.records
    assert '"demo/unpinned==4"' in record.getMessage()
    assert commit in record.getMessage()


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ({"repo_id": "demo/k==1", "version": 1}, InputError),
        ({"repo_id": "demo/k@v1", "version": 1}, InputError),
        ({"repo_id": "demo/k", "version": 1, "revision": "v1"}, InputError),
        ({"repo_id": "demo/k", "version": 1.5}, InputError),
        ({"repo_id": "demo/k", "version": True}, InputError),
        ({"repo_id": "demo/k", "version": ">=one"}, RequirementError),
        ({"repo_id": "no-slash"}, RequirementError),
        ({"repo_id": "demo/k", "framework": "tensorflow"}, InputError),
        ({"repo_id": "demo/k", "trust_remote_code": "demo/k"}, InputError),
    ],
)
def test_arguments_that_mean_nothing(arguments: dict[str, object], kind: type[Exception]) -> None:
    for function in (get_kernel, has_kernel):
        with pytest.raises(kind):
            function(**arguments)


def test_what_does_not_exist(hub: RunningHub, publish: Publish) -> None:
    publish("demo/k", numbered(2), version=2)
    publish("demo/k", numbered(5), version=5)
    with pytest.raises(VersionNotFound, match="published versions: 2, 5") as caught:
        get_kernel("demo/k", version=1, **TRUST)
    assert caught.value.available == (2, 5)
    with pytest.raises(VersionNotFound, match="no revision 'nope'"):
        get_kernel("demo/k", revision="nope", **TRUST)
    with pytest.raises(VersionNotFound):
        get_kernel("demo/k", revision="0" * 40, **TRUST)
    with pytest.raises(RepositoryNotFound):
        get_kernel("demo/other", **TRUST)
    publish("demo/empty", {"README.md": b"x"})
    with pytest.raises(NoCompatibleVariant, match="publishes no build"):
        get_kernel("demo/empty", version=1, **TRUST)


def test_nothing_for_this_machine_says_why_for_each(publish: Publish) -> None:
    files = {
        **published.variant(backend="tpu"),
        **published.variant(backend="xpu", extension={"requires": {"python": "<3"}}),
        "build/torch29-cxx11-cu128-x86_64-linux/metadata.json": b"{}",
    }
    publish("demo/k", files)
    with scope(interpret=False), pytest.raises(NoCompatibleVariant) as caught:
        get_kernel("demo/k", version=1, **TRUST)
    assert caught.value.reasons == {
        "torch-tpu": "is for tpu, and cpu is what this machine has",
        "torch-xpu": "is for xpu, and cpu is what this machine has",
        "torch29-cxx11-cu128-x86_64-linux": (
            "not a noarch variant: compiled builds are not loaded here"
        ),
    }
    with scope(interpret=False):
        answer = has_kernel("demo/k", 1, **TRUST)
    assert not answer
    assert "torch-tpu" in answer.reason
    assert isinstance(answer.error, NoCompatibleVariant)


def test_has_kernel_downloads_metadata_only(hub: RunningHub, publish: Publish) -> None:
    publish("demo/k", eight_files())
    answer = has_kernel("demo/k", version=1, **TRUST)
    assert answer
    assert [verdict.variant for verdict in answer.trace] == ["torch-cpu"]
    assert [path.rpartition("/")[2] for path in published.asked(hub)] == [
        "refs",
        "build",
        "metadata.json",
    ]
    hub.clear()
    get_kernel("demo/k", version=1, **TRUST)
    assert len(published.asked(hub)) == 8  # its version again, and the seven other files


@pytest.mark.parametrize("repo_id", ["demo/none", "demo/k==9", "demo/k@nope", "demo/k==1"])
def test_an_ordinary_no_is_no_exception(publish: Publish, repo_id: str) -> None:
    publish("demo/k", eight_files())
    answer = has_kernel(repo_id)
    assert not answer
    assert answer.reason


def test_trust(hub: RunningHub, publish: Publish, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = publish("demo/k", eight_files(1))
    publish("trusted-org/k", eight_files(2))
    for argument in (False, [], ["demo/other"]):
        with pytest.raises(TrustError, match="'demo'") as caught:
            get_kernel("demo/k", version=1, trust_remote_code=argument)
        assert "KERNELHUB_TRUST=demo/k" in (caught.value.hint or "")
        assert "trust_remote_code=['demo/k']" in (caught.value.hint or "")
    assert not [path for path in published.asked(hub) if "/resolve/" in path]
    get_kernel("demo/k", version=1, trust_remote_code=["demo/k"])
    assert last_loaded().consent is Consent.ARGUMENT
    get_kernel("trusted-org/k", version=1)
    assert last_loaded().consent is Consent.PUBLISHER
    with pytest.raises(TrustError):  # consent by argument is not remembered
        get_kernel(f"demo/k@{commit}")
    for allowed in ("demo", "demo/k"):
        monkeypatch.setenv("KERNELHUB_TRUST", f"x, {allowed}")
        assert get_kernel("demo/k", version=1)


def test_trust_offline_is_what_was_decided_online(publish: Publish) -> None:
    trusted = publish("trusted-org/k", eight_files(3))
    other = publish("demo/k", eight_files(4))
    get_kernel("trusted-org/k", version=1)
    get_kernel("demo/k", version=1, **TRUST)
    forget()
    with scope(offline=True):
        assert get_kernel("trusted-org/k", version=1)
        assert get_kernel(f"trusted-org/k@{trusted}")
        with pytest.raises(TrustError, match="cannot be asked offline"):
            get_kernel(f"demo/k@{other}")
        assert get_kernel(f"demo/k@{other}", trust_remote_code=["demo/k"])


def test_offline(hub: RunningHub, publish: Publish) -> None:
    publish("demo/k", numbered(1), version=1)
    publish("demo/k", numbered(2), version=2)
    commit = get_kernel("demo/k==1", **TRUST) and last_loaded().commit
    forget()
    hub.clear()
    with scope(offline=True):
        for arguments in ({"version": 1}, {"revision": commit}, {}, {"version": ">=1"}):
            assert get_kernel("demo/k", **arguments, **TRUST).NUMBER == 1
        with pytest.raises(NotCached, match="offline"):
            get_kernel("demo/k", version=2, **TRUST)
        with pytest.raises(NotCached):
            get_kernel("demo/k", revision="main", **TRUST)
        with pytest.raises(NotCached):
            get_kernel("demo/unknown", **TRUST)
        assert not has_kernel("demo/k", version=2, **TRUST)
    assert published.asked(hub) == []


def test_a_hub_that_is_down_is_as_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with running_hub(tmp_path / "hub") as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        published.publish(hub.url, "demo/k", numbered(1))
        get_kernel("demo/k", version=1, **TRUST)
    began = time.monotonic()
    assert get_kernel("demo/k", version=1, **TRUST).NUMBER == 1
    assert time.monotonic() - began < 1
    assert "using what it said last" in caplog.text
    with pytest.raises(HubUnavailable), scope(timeout=0.5):
        get_kernel("demo/k", version=2, **TRUST)


def test_a_version_that_moves_on(publish: Publish) -> None:
    files = numbered(1)
    publish("demo/k", files)
    assert get_kernel("demo/k", version=1, **TRUST).NUMBER == 1
    publish("demo/k", published.variant({"__init__.py": b"NUMBER = 11\n"}))
    assert get_kernel("demo/k", version=1, **TRUST).NUMBER == 11
    assert len({k.commit for k in get_loaded_kernels()[-2:]}) == 2


@pytest.mark.parametrize("damage", ["changed", "truncated", "removed", "extra", "metadata"])
def test_a_damaged_copy_is_replaced_once(
    hub: RunningHub, publish: Publish, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    commit = publish("demo/k", eight_files(hash(damage) % 1000))
    get_kernel(f"demo/k@{commit}", **TRUST)
    folder = cached_folder()
    target = folder / ("metadata.json" if damage == "metadata" else "m1.py")
    if damage == "removed":
        target.unlink()
    elif damage == "extra":
        (folder / "extra.py").write_bytes(b"x = 1\n")
    elif damage == "truncated":
        target.write_bytes(target.read_bytes()[:-1])
    else:
        target.write_bytes(target.read_bytes().replace(b"N", b"M").replace(b"demo", b"dem0"))
    damaged = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    forget()
    with scope(offline=True), pytest.raises(IntegrityError, match="does not hold what was publ"):
        get_kernel(f"demo/k@{commit}", **TRUST)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == damaged
    hub.clear()
    get_kernel(f"demo/k@{commit}", **TRUST)
    assert "downloading torch-cpu again" in caplog.text
    assert not (folder / "extra.py").exists()
    assert 7 <= len(published.asked(hub)) <= 8
    hub.clear()
    forget()
    get_kernel(f"demo/k@{commit}", **TRUST)
    assert published.asked(hub) == []


def test_an_unread_file_of_byte_code_is_not_downloaded(hub: RunningHub, publish: Publish) -> None:
    files = eight_files(77)
    files["build/torch-cpu/__pycache__/m1.cpython-311.pyc"] = b"evil"
    files["build/torch-cpu/m1.pyc"] = b"evil"
    publish("demo/k", files)
    get_kernel("demo/k", version=1, **TRUST)
    assert not list(cached_folder().rglob("*.pyc"))
    assert not [path for path in published.asked(hub) if path.endswith(".pyc")]


def test_a_kernel_without_a_digest_is_checked_by_the_listing(publish: Publish) -> None:
    files = {"__init__.py": b"X = 'no digest'\n", "big.bin": b"\0" * 5000}
    publish("demo/k", published.variant(files, digest=False), lfs=["build/torch-cpu/big.bin"])
    assert get_kernel("demo/k", version=1, **TRUST).X == "no digest"
    (cached_folder() / "big.bin").write_bytes(b"\1" * 5000)
    forget()
    with scope(offline=True), pytest.raises(IntegrityError) as caught:
        get_kernel("demo/k", version=1, **TRUST)
    assert list(caught.value.faults) == ["big.bin"]


def test_a_publisher_whose_digest_is_wrong(publish: Publish) -> None:
    files = eight_files(5)
    files["build/torch-cpu/m1.py"] = b"N = 'not what the digest says'\n"
    files["build/torch-cpu/more.py"] = b""
    publish("demo/k", files)
    with pytest.raises(IntegrityError, match="publisher has to repair") as caught:
        get_kernel("demo/k", version=1, **TRUST)
    assert set(caught.value.faults) == {"m1.py", "more.py"}
    store = settings.current().cache
    assert not list(store.glob("v1/*/*/*/build/*"))


def test_universal_as_hf_builds_it(publish: Publish) -> None:
    files = published.variant(folder="torch-universal", backend="cuda", digest=False)
    publish("demo/k", files)
    with scope(interpret=False):
        assert get_kernel("demo/k", version=1, **TRUST).answer() == 42


def test_local_kernels_take_precedence(
    hub: RunningHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path, data in published.variant({"__init__.py": b"WHERE = 'local'\n"}).items():
        (tmp_path / "here" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "here" / path).write_bytes(data)
    monkeypatch.setenv("LOCAL_KERNELS", f"demo/k={tmp_path / 'here'}")
    assert get_kernel("demo/k", version=7).WHERE == "local"
    assert get_loaded_kernels()[-1].consent is Consent.LOCAL
    assert has_kernel("demo/k")
    assert published.asked(hub) == []


def test_windows_paths_in_local_kernels() -> None:
    parsed = settings.parse_local_kernels(r"demo/k=C:\kernels\k;org/x=D:/x:org/y=/y")
    assert {k: str(v) for k, v in parsed.items()} == {
        "demo/k": r"C:\kernels\k",
        "org/x": "D:/x",
        "org/y": "/y",
    }


def test_kernels_that_need_kernels(publish: Publish) -> None:
    publish("demo/base", published.variant({"__init__.py": b"BASE = 10\n"}))
    for module in ("kernels", "kernelhub"):
        code = f"import {module} as m\nBASE = m.get_kernel_dep('demo/base').BASE + 1\n"
        needs = [{"repo-id": "demo/base", "version": 1}]
        publish(
            f"demo/top-{module}", published.variant({"__init__.py": code.encode()}, needs=needs)
        )
        assert get_kernel(f"demo/top-{module}", version=1, **TRUST).BASE == 11
    with pytest.raises(TrustError, match="demo/base"):
        get_kernel("demo/top-kernels", version=1, trust_remote_code=["demo/top-kernels"])


def test_kernels_that_depend_on_each_other(publish: Publish) -> None:
    for here, there in (("a", "b"), ("b", "c"), ("c", "a")):
        needs = [{"repo-id": f"demo/{there}", "version": 1}]
        publish(f"demo/{here}", published.variant(needs=needs))
    with pytest.raises(LoadError, match="demo/a==1 -> demo/b==1 -> demo/c==1 -> demo/a==1"):
        get_kernel("demo/a", version=1, **TRUST)


def test_a_source_of_ones_own(publish: Publish, hub: RunningHub) -> None:
    from kernelhub.sources.hub import HubSource

    publish("demo/k", numbered(1))
    source = HubSource(hub.url, 30.0)
    with scope(endpoint="http://127.0.0.1:9"):
        assert get_kernel("demo/k", version=1, source=source, **TRUST).NUMBER == 1


def test_a_cache_that_cannot_be_written(publish: Publish, mount: Mount) -> None:
    publish("demo/k", numbered(1), version=1)
    publish("demo/k", numbered(2), version=2)
    cache = mount("size=4m")
    with scope(cache=cache):
        get_kernel("demo/k", version=1, **TRUST)
        mount("remount,ro")
        forget()
        assert get_kernel("demo/k", version=1, **TRUST).NUMBER == 1
        assert has_kernel("demo/k", version=2, **TRUST)
        with pytest.raises(StoreError, match="cannot be written") as caught:
            get_kernel("demo/k", version=2, **TRUST)
    assert "KERNELHUB_CACHE" in (caught.value.hint or "")


class Filler(Reporter):
    """Fills a disk as soon as the first bytes of a download arrive."""

    def __init__(self, ballast: Path) -> None:
        self.ballast = ballast

    def advance(self, amount: int = 1, note: str = "") -> None:
        if not self.ballast.exists():
            self.ballast.write_bytes(b"x" * (3 << 19))


@pytest.mark.parametrize("full_from_the_start", [True, False])
def test_a_full_disk(publish: Publish, mount: Mount, full_from_the_start: bool) -> None:
    big = published.variant({"__init__.py": b"X = 1\n", "data.bin": b"\1" * (2 << 20)})
    publish("demo/big", big, lfs=["build/torch-cpu/data.bin"])
    cache = mount("size=3m")
    filler = Filler(cache / "ballast")
    if full_from_the_start:
        filler.advance()
    with scope(cache=cache):
        with pytest.raises(StoreError, match=r"\d+ bytes are needed") as caught:
            get_kernel("demo/big", version=1, reporter=filler, **TRUST)
        assert str(cache) in str(caught.value)
        filler.ballast.unlink()
        assert get_kernel("demo/big", version=1, **TRUST).X == 1


def test_leftovers_of_dead_processes_are_cleaned(publish: Publish) -> None:
    import os

    publish("demo/k", numbered(1), version=1)
    publish("demo/k", numbered(2), version=2)
    get_kernel("demo/k", version=1, **TRUST)
    incoming = cached_folder().parents[2] / "incoming"
    old, young, used = incoming / "old", incoming / "young", incoming / "used"
    for folder in (old, young, used):
        folder.mkdir()
        (folder / "f").write_bytes(b"x")
    for path in (old, old / "f", used):
        os.utime(path, (0, 0))
    get_kernel("demo/k", version=2, **TRUST)
    assert sorted(path.name for path in incoming.iterdir()) == ["used", "young"]


@pytest.mark.parametrize(
    "place", ["remembered.json", "*/listing.json", "*/metadata/torch-cpu.json", "*/receipts/*.json"]
)
def test_unfinished_notes_of_dead_processes_are_cleaned(publish: Publish, place: str) -> None:
    import os

    publish("demo/k", numbered(1), version=1)
    publish("demo/k", numbered(2), version=2)
    get_kernel("demo/k", version=1, **TRUST)
    note = next(cached_folder().parents[2].glob(place))
    old, young = (note.with_name(f".{note.name}.{n}-0123abcd") for n in (1, 2))
    for path in (old, young):
        path.write_bytes(b"{")
    os.utime(old, (0, 0))
    note.with_name(".mine.json").touch()
    os.utime(note.with_name(".mine.json"), (0, 0))
    get_kernel("demo/k", version=2, **TRUST)
    assert not old.exists()
    assert young.exists()
    assert note.with_name(".mine.json").exists()


def test_damaged_notes_of_the_store(publish: Publish, hub: RunningHub) -> None:
    publish("demo/k", numbered(1))
    get_kernel("demo/k", version=1, **TRUST)
    repository = cached_folder().parents[2]
    for path in [*repository.rglob("*.json")]:
        path.write_bytes(b'{"schema": 99')
    forget()
    assert get_kernel("demo/k", version=1, **TRUST).NUMBER == 1
    shutil.rmtree(repository)
    assert get_kernel("demo/k", version=1, **TRUST).NUMBER == 1


def test_an_emptied_list_of_files_is_not_believed(publish: Publish) -> None:
    publish("demo/k", numbered(1))
    get_kernel("demo/k", version=1, **TRUST)
    listing = cached_folder().parents[1] / "listing.json"
    whole = listing.read_bytes()
    listing.write_bytes(b"[]")
    with scope(offline=True), pytest.raises(NotCached, match="the list of its files"):
        get_kernel("demo/k", version=1, **TRUST)
    assert get_kernel("demo/k", version=1, **TRUST).NUMBER == 1
    assert listing.read_bytes() == whole


def test_importing_the_package_imports_next_to_nothing() -> None:
    """Counted in modules, since times differ; without `site`, which may import what it likes."""
    code = "import sys; old = set(sys.modules); import kernelhub; print(*set(sys.modules) - old)"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(Path(kernelhub.__file__).parents[1])},
    )
    expected = {"__future__", "importlib", "kernelhub", "kernelhub._version", "warnings"}
    found = {name for name in done.stdout.split() if not name.startswith("importlib._")}
    assert found <= expected


def test_local_kernels_say_which_pin_they_ignore(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for path, data in numbered(2).items():
        (tmp_path / "here" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "here" / path).write_bytes(data)
    monkeypatch.setenv("LOCAL_KERNELS", f"demo/k={tmp_path / 'here'}")
    with caplog.at_level(logging.WARNING, "kernelhub"):
        for fits in ("demo/k", "demo/k==2", "demo/k>=1"):
            get_kernel(fits)
        assert not caplog.records
        for other in ("demo/k==3", "demo/k==3", "demo/k@main"):
            get_kernel(other)
    said = [record.getMessage() for record in caplog.records]
    assert [text.split()[0] for text in said] == ["demo/k==3", "demo/k@main"]
    assert all("LOCAL_KERNELS" in text and "version 2" in text for text in said)


def test_faults_of_local_kernels_name_the_kernel_and_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_KERNELS", f"demo/k={tmp_path / 'here'}")
    with pytest.raises(NotFoundError, match=r"^demo/k \(LOCAL_KERNELS: .*is no folder"):
        get_kernel("demo/k")
    for path, data in numbered(2).items():
        (tmp_path / "here" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "here" / path).write_bytes(data)
    (tmp_path / "here/build/torch-cpu/__init__.py").write_bytes(b"NUMBER = 3\n")
    with pytest.raises(IntegrityError, match=r"^demo/k \(LOCAL_KERNELS: "):
        get_kernel("demo/k")


def test_a_relative_cache_stays_where_it_was(
    publish: Publish, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish("demo/k", numbered(1))
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("KERNELHUB_CACHE", "a-relative-cache")
    monkeypatch.chdir(tmp_path / "first")
    get_kernel("demo/k", version=1, **TRUST)
    monkeypatch.chdir(tmp_path / "second")
    get_kernel("demo/k", version=1, **TRUST)
    assert [path.name for path in (tmp_path / "first").iterdir()] == ["a-relative-cache"]
    assert not list((tmp_path / "second").iterdir())


def test_a_damaged_memory_is_spoken_of_once(
    publish: Publish, caplog: pytest.LogCaptureFixture
) -> None:
    publish("demo/k", numbered(1))
    get_kernel("demo/k", version=1, **TRUST)
    memory = cached_folder().parents[2] / "remembered.json"
    memory.write_bytes(b"{")
    with caplog.at_level(logging.WARNING, "kernelhub"):
        get_kernel("demo/k", version=1, **TRUST)
    (record,) = caplog.records
    assert "remembered.json is damaged" in record.getMessage()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_a_pipe_among_the_files_is_not_part_of_what_was_published(publish: Publish) -> None:
    publish("demo/k", numbered(1))
    get_kernel("demo/k", version=1, **TRUST)
    os.mkfifo(cached_folder() / "pipe.py")
    forget()
    with scope(offline=True), pytest.raises(IntegrityError) as caught:
        get_kernel("demo/k", version=1, **TRUST)
    assert caught.value.faults == {"pipe.py": "not part of what was published"}
    assert get_kernel("demo/k", version=1, **TRUST).NUMBER == 1
    assert not (cached_folder() / "pipe.py").exists()
