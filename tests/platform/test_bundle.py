"""Bundles: deterministic, whole or refused, and a load on a machine with no network."""

from __future__ import annotations

import hashlib
import io
import json
import os
import random
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import published
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from kernelhub import get_kernel, settings, tar
from kernelhub.errors import FormatError, IntegrityError, KernelHubError, StoreError, TrustError
from kernelhub.formats.bundle import parse_bundle
from kernelhub.formats.content import content_digest
from kernelhub.formats.lock import parse_lock
from kernelhub.formats.lock_text import render_lock
from kernelhub.formats.metadata import parse_metadata
from kernelhub.serve.testing import RunningHub
from kernelhub.settings import scope
from kernelhub.store import Store
from kernelhub.unbundling import read_bundle

Publish = Callable[..., str]
Command = Callable[..., Any]


def refusal(parse: Callable[..., object], *arguments: object) -> FormatError | None:
    """What `parse` raises for faults of a file, None if it reads it."""
    try:
        parse(*arguments)
    except FormatError as error:
        return error
    return None


def numbered(number: int, **facts: object) -> dict[str, bytes]:
    return published.variant({"__init__.py": b"NUMBER = %d\n" % number, "é.txt": b"x"}, **facts)


@pytest.fixture
def bundled(publish: Publish, project: Path, command: Command) -> Path:
    """A bundle of one kernel for two backends."""
    publish("demo/k", numbered(1) | numbered(1, backend="cuda"))
    (project / "kernel-requirements.txt").write_text("demo/k\n")
    outcome = command("bundle", "--platform", "all")
    assert outcome.code == 0, outcome.err
    return project / "kernels.tar"


def away(tmp_path: Path) -> Store:
    """The store of another machine."""
    return Store(tmp_path / "away", settings.current().endpoint)


def held(store: Store) -> list[str]:
    return [stored.receipt.variant for _, stored in store.everything()]


def test_there_and_back(
    hub: RunningHub, bundled: Path, project: Path, command: Command, tmp_path: Path
) -> None:
    hub.clear()
    with scope(cache=tmp_path / "away", offline=True):
        outcome = command("unbundle", bundled)
        assert outcome.code == 0, outcome.err
        assert "2 variants" in outcome.out
        assert "held to the project's lock" in outcome.out
        assert get_kernel("demo/k").NUMBER == 1
        (project / "kernelhub.lock").unlink()
        with pytest.raises(TrustError):
            get_kernel("demo/k", version=1)
        assert get_kernel("demo/k", version=1, trust_remote_code=True).NUMBER == 1
        assert command("unbundle", bundled).code == 0, "again"
    assert hub.requests == []
    assert not (tmp_path / "away/v1/scratch").exists()


def test_the_same_kernels_give_the_same_bytes(
    bundled: Path, project: Path, command: Command, tmp_path: Path
) -> None:
    with scope(cache=tmp_path / "other"):
        assert command("bundle", "-o", "again.tar", "--platform", "all").code == 0
    assert (project / "again.tar").read_bytes() == bundled.read_bytes()
    with tarfile.open(bundled) as other:  # an ordinary tar
        members = other.getmembers()
    assert [m.name for m in members[:2]] == ["bundle.json", "kernelhub.lock"]
    assert all(m.isreg() and m.mtime == m.uid == m.gid == 0 for m in members)
    names = [m.name for m in members[2:]]
    assert names == sorted(set(names)), "equal files of two variants are there once"


def rebuild(path: Path, change: Callable[[list[tuple[tarfile.TarInfo, bytes]]], None]) -> None:
    """Write the bundle anew with changed members, by Python's own tar."""
    with tarfile.open(path) as source:
        members = [(m, source.extractfile(m).read() if m.isreg() else b"") for m in source]
    change(members)
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as target:
        for info, data in members:
            if info.isreg():
                info.size = len(data)
            target.addfile(info, io.BytesIO(data))


def member(name: str, data: bytes = b"", kind: bytes = tarfile.REGTYPE, link: str = ""):
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, len(data)
    return info, data


def manifest(change: Callable[[dict[str, Any]], None]):
    def run(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
        value = json.loads(members[0][1])
        change(value)
        members[0] = (members[0][0], json.dumps(value).encode())

    return run


def rename_file(to: str):
    def change(value: dict[str, Any]) -> None:
        files = value["kernels"][0]["files"]
        files[to] = files.pop("build/torch-cpu/__init__.py")

    return manifest(change)


def forge(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    """Other code, under a manifest that is made to match."""
    data = b"NUMBER = 666\n"
    value = json.loads(members[0][1])
    old = value["kernels"][0]["files"]["build/torch-cpu/__init__.py"]
    new = hashlib.sha256(data).hexdigest()
    text = members[0][1].replace(old.encode(), new.encode())
    value = json.loads(text)
    value["blobs"][new] = len(data)
    members[0] = (members[0][0], json.dumps(value).encode())
    index = next(i for i, (info, _) in enumerate(members) if info.name.endswith(old))
    members[index] = member(f"blobs/sha256/{new}", data)


def drop_from_lock(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    text = b"schema = 1\n"
    members[1] = (members[1][0], text)
    manifest(lambda value: value.update(lock=hashlib.sha256(text).hexdigest()))(members)


def claim_a_version(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    text = members[1][1].replace(b"version = 1", b"version = 7")
    assert text != members[1][1]
    members[1] = (members[1][0], text)
    manifest(lambda value: value.update(lock=hashlib.sha256(text).hexdigest()))(members)


@pytest.mark.parametrize(
    ("change", "kind", "text"),
    [
        (lambda m: m.append(member("../../evil", b"x")), IntegrityError, "which its manifest"),
        (lambda m: m.append(member("/etc/passwd", b"x")), IntegrityError, "which its manifest"),
        (
            lambda m: m.insert(2, member("blobs/x", kind=tarfile.SYMTYPE, link="/etc/passwd")),
            IntegrityError,
            "no plain file",
        ),
        (
            lambda m: m.insert(2, member("blobs/x", kind=tarfile.LNKTYPE, link="bundle.json")),
            IntegrityError,
            "no plain file",
        ),
        (lambda m: m.insert(2, member("x", kind=tarfile.DIRTYPE)), IntegrityError, "no plain file"),
        (lambda m: m.insert(2, member("x", kind=tarfile.CHRTYPE)), IntegrityError, "no plain file"),
        (lambda m: m.append(m[-1]), IntegrityError, "which its manifest does not"),
        (lambda m: m.pop(), IntegrityError, "lacks 1 of the files"),
        (lambda m: m.pop(0), IntegrityError, "bundle.json has to be"),
        (lambda m: m.pop(1), IntegrityError, "kernelhub.lock has to be"),
        (rename_file("build/torch-cpu/../../../evil.py"), FormatError, "'..'"),
        (rename_file("/evil.py"), FormatError, "must be relative"),
        (rename_file("C:/evil.py"), FormatError, "colon"),
        (rename_file("build/torch-cpu/a\\b.py"), FormatError, "backslash"),
        (rename_file("build/torch-cpu/other.py"), IntegrityError, "__init__.py: missing"),
        (rename_file("elsewhere/x.py"), IntegrityError, "no file of a variant"),
        (manifest(lambda v: v.update(schema=2)), FormatError, "schema number 1, found 2"),
        (manifest(lambda v: v["kernels"][0].update(commit="x")), FormatError, "git commit"),
        (manifest(lambda v: v["kernels"][0].update(variants=["a/b"])), FormatError, "no variant"),
        (
            manifest(lambda v: v["blobs"].update({"0" * 64: 1 << 62})),
            FormatError,
            "expected 8589934591 or less",
        ),
        (
            manifest(lambda v: v["blobs"].update({f"{n:064x}": 8 << 29 for n in range(99999)})),
            StoreError,
            "needs",
        ),
        (lambda m: m.__setitem__(1, (m[1][0], b"schema = 1\n")), IntegrityError, "the lock in"),
        (drop_from_lock, IntegrityError, "not in the bundle's lock"),
        (forge, IntegrityError, "content differs"),
        (claim_a_version, IntegrityError, "as version 7, and its metadata states version 1"),
    ],
)
def test_what_is_refused(
    bundled: Path, tmp_path: Path, change: Callable[..., None], kind: type[Exception], text: str
) -> None:
    rebuild(bundled, change)
    store = away(tmp_path)
    with pytest.raises(kind) as caught:
        read_bundle(bundled, store)
    assert text in str(caught.value)
    assert held(store) == []
    assert not list(tmp_path.rglob("*evil*"))
    assert not (tmp_path / "away/v1/scratch").exists()


def test_a_bundle_of_another_lock(
    bundled: Path, publish: Publish, project: Path, command: Command, tmp_path: Path
) -> None:
    publish("demo/k", numbered(2))
    assert command("lock", "--upgrade-all").code == 0
    with scope(cache=tmp_path / "away"):
        outcome = command("unbundle", bundled)
        assert outcome.code == 1
        assert "not what the project's lock pins" in outcome.err
        assert held(away(tmp_path)) == []
        assert command("unbundle", bundled, "--no-lock").code == 0


def test_cut_anywhere(bundled: Path, tmp_path: Path) -> None:
    data = bundled.read_bytes()
    store = away(tmp_path)
    cuts = {0, 1, 511, 512, 513, len(data) - 1, len(data) - 512, len(data) - 1024}
    cuts |= set(random.Random(7).sample(range(len(data)), 40))
    for cut in sorted(cuts):
        bundled.write_bytes(data[:cut])
        with pytest.raises((IntegrityError, FormatError)):
            read_bundle(bundled, store)
    assert held(store) == []


def test_a_changed_byte_anywhere(bundled: Path, tmp_path: Path) -> None:
    """Any one bit that flips is refused, unless it is in a header field that nobody reads."""
    data = bundled.read_bytes()
    random.seed(11)
    for position in random.sample(range(len(data) - 1024), 60):
        changed = bytearray(data)
        changed[position] ^= 1 << random.randrange(8)
        bundled.write_bytes(bytes(changed))
        with pytest.raises((IntegrityError, FormatError)):
            read_bundle(bundled, away(tmp_path))
    assert held(away(tmp_path)) == []


def test_a_header_of_absurd_size(bundled: Path, tmp_path: Path) -> None:
    info = tarfile.TarInfo("bundle.json")
    info.size = 1 << 60
    bundled.write_bytes(info.tobuf(tarfile.GNU_FORMAT) + b"x" * 2000)
    with pytest.raises(IntegrityError, match="at most"):
        read_bundle(bundled, away(tmp_path))


@given(st.binary(max_size=2000))
def test_any_bytes_are_a_tar_or_refused(data: bytes) -> None:
    try:
        for found in tar.members(io.BytesIO(data)):
            b"".join(found.pieces())
    except IntegrityError:
        pass


@given(st.binary(max_size=300))
def test_any_manifest_is_read_or_refused(data: bytes) -> None:
    error = refusal(parse_bundle, data)
    assert error is None or error.problems


FILES = st.lists(
    st.tuples(
        st.from_regex(r"[a-z]{1,20}(/[a-z]{1,20}){0,3}", fullmatch=True),
        st.binary(max_size=1500),
    ),
    max_size=5,
)


@given(FILES)
@hypothesis_settings(suppress_health_check=[HealthCheck.too_slow])
def test_our_tar_and_pythons_agree(files: list[tuple[str, bytes]]) -> None:
    data = b"".join(
        tar.header(name, len(content)) + content + tar.padding(len(content))
        for name, content in files
    )
    data += tar.END
    ours = [(m.name, b"".join(m.pieces())) for m in tar.members(io.BytesIO(data))]
    assert ours == files
    with tarfile.open(fileobj=io.BytesIO(data)) as theirs:
        assert [(m.name, theirs.extractfile(m).read()) for m in theirs] == files


def unbundling(bundle: Path, cache: Path) -> subprocess.Popen[bytes]:
    """`kernelhub unbundle` as a process of its own, on another machine."""
    code = "import sys; from kernelhub.cli import group, run; sys.exit(run(group, sys.argv[1:]))"
    environ = {**os.environ, "KERNELHUB_CACHE": str(cache), "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(
        [sys.executable, "-c", code, "unbundle", str(bundle)],
        env=environ,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


@pytest.mark.slow
def test_killed_while_unbundling(
    publish: Publish, project: Path, command: Command, tmp_path: Path
) -> None:
    """Whenever it is killed: what is visible is whole, and the next one succeeds."""
    files = {"__init__.py": b"NUMBER = 1\n"} | {f"{n}.bin": bytes(200_000) for n in range(20)}
    publish("demo/k", published.variant(files) | published.variant(files, backend="cuda"))
    (project / "kernel-requirements.txt").write_text("demo/k\n")
    assert command("bundle", "--platform", "all").code == 0
    bundle, cache = project / "kernels.tar", tmp_path / "away"
    random.seed(5)
    for _ in range(5):
        process = unbundling(bundle, cache)
        until = time.monotonic() + 20
        while not (cache / "v1/scratch").exists() and time.monotonic() < until:
            time.sleep(0.002)
        time.sleep(random.uniform(0, 0.25))
        process.kill()
        process.wait()
        with scope(cache=cache):
            outcome = command("verify", "--json")
        assert outcome.code == 0, outcome.out
        shutil.rmtree(cache / "v1/scratch", ignore_errors=True)
    together = [unbundling(bundle, cache) for _ in range(3)]
    assert [process.wait(60) for process in together] == [0, 0, 0]
    with scope(cache=cache, offline=True):
        assert get_kernel("demo/k").NUMBER == 1
        assert held(Store(cache, settings.current().endpoint)) == ["torch-cpu", "torch-cuda"]


def test_nothing_to_bundle(project: Path, command: Command, publish: Publish) -> None:
    publish("demo/k", numbered(1, backend="cuda"))
    (project / "kernel-requirements.txt").write_text("demo/k\n")
    outcome = command("bundle", "--platform", "tpu")
    assert outcome.code == 1
    assert not (project / "kernels.tar").exists()
    with pytest.raises(KernelHubError, match="does not exist"):
        read_bundle(project / "kernels.tar", away(project))


def forge_all(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    """Other code under the same commit, with everything recomputed that states what it is."""
    value = json.loads(members[0][1])
    kernel = value["kernels"][0]
    files = published.variant({"__init__.py": b"NUMBER = 666\n", "\u00e9.txt": b"x"})
    entries = [
        {
            "path": path,
            "size": len(data),
            "git_sha1": hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest(),
            "sha256": None,
        }
        for path, data in sorted(files.items())
    ]
    listing = json.dumps(entries).encode()
    blobs = {hashlib.sha256(data).hexdigest(): data for data in (*files.values(), listing)}
    data = files["build/torch-cpu/metadata.json"]
    content = content_digest(data, parse_metadata(data).digest)
    lock = parse_lock(members[1][1], "x")
    pinned = replace(lock.kernels[0], variants={"torch-cpu": content})
    text = render_lock(replace(lock, kernels=(pinned,))).encode()
    kernel["variants"] = ["torch-cpu"]
    kernel["files"] = {path: hashlib.sha256(data).hexdigest() for path, data in files.items()}
    kernel["listing"] = hashlib.sha256(listing).hexdigest()
    value["blobs"] = {sha: len(data) for sha, data in blobs.items()}
    value["lock"] = hashlib.sha256(text).hexdigest()
    members[:] = [
        member("bundle.json", json.dumps(value).encode()),
        member("kernelhub.lock", text),
        *(member(f"blobs/sha256/{sha}", data) for sha, data in sorted(blobs.items())),
    ]


@pytest.fixture
def forged(publish: Publish, project: Path, command: Command) -> Path:
    """A forged bundle of a kernel that the Hub trusts, in a folder with no lock."""
    publish("trusted-org/k", numbered(1))
    (project / "kernel-requirements.txt").write_text("trusted-org/k\n")
    assert command("bundle").code == 0
    shutil.copy(project / "kernelhub.lock", project / "honest.lock")
    shutil.copy(project / "kernels.tar", project / "honest.tar")
    (project / "kernelhub.lock").unlink()
    rebuild(project / "kernels.tar", forge_all)
    return project / "kernels.tar"


def test_a_forged_bundle_does_not_replace_what_is_known(
    forged: Path, command: Command, tmp_path: Path
) -> None:
    with scope(cache=tmp_path / "knows"):
        assert get_kernel("trusted-org/k==1").NUMBER == 1
        outcome = command("unbundle", forged)
        assert outcome.code == 1
        assert "build/torch-cpu/__init__.py: on this machine: git-sha1" in outcome.err
        assert "in the bundle: git-sha1" in outcome.err
        assert command("unbundle", forged.with_name("honest.tar")).code == 0
        with scope(offline=True):
            assert get_kernel("trusted-org/k==1").NUMBER == 1, "and is not marked by a bundle"


def test_bytes_of_a_bundle_inherit_no_decision(
    hub: RunningHub, forged: Path, command: Command, tmp_path: Path
) -> None:
    lock = parse_lock((forged.parent / "honest.lock").read_bytes(), "x")
    name = f"trusted-org/k@{lock.kernels[0].commit}"
    with scope(cache=tmp_path / "away"):
        get_kernel(name)
        assert command("trust", "add", name).code == 0
        assert command("cache", "prune", "--all").code == 0  # the decisions stay
        assert command("unbundle", forged).code == 0
        with scope(offline=True):
            with pytest.raises(TrustError, match="came by a bundle"):
                get_kernel(name)
            assert get_kernel(name, trust_remote_code=True).NUMBER == 666
        assert get_kernel(name).NUMBER == 1
        assert get_kernel(name, trust_remote_code=True).NUMBER == 1
        hub.clear()
        with scope(offline=True):
            assert get_kernel(name).NUMBER == 1, "the Hub has listed it meanwhile"


def test_an_honest_bundle_is_the_hubs_once_asked(
    forged: Path, command: Command, tmp_path: Path
) -> None:
    with scope(cache=tmp_path / "away"):
        assert command("unbundle", forged.with_name("honest.tar")).code == 0
        with scope(offline=True), pytest.raises(TrustError, match="came by a bundle"):
            get_kernel("trusted-org/k==1")
        assert get_kernel("trusted-org/k==1").NUMBER == 1
        with scope(offline=True):
            assert get_kernel("trusted-org/k==1").NUMBER == 1


def test_a_lock_is_stronger_than_an_earlier_bundle(
    forged: Path, project: Path, command: Command, tmp_path: Path
) -> None:
    with scope(cache=tmp_path / "away", offline=True):
        assert command("unbundle", forged).code == 0
        assert "by an earlier bundle" in command("unbundle", project / "honest.tar").err
        shutil.copy(project / "honest.lock", project / "kernelhub.lock")
        with pytest.raises(IntegrityError):
            get_kernel("trusted-org/k")
        assert command("unbundle", project / "honest.tar").code == 0
        assert get_kernel("trusted-org/k").NUMBER == 1


def test_sync_gets_over_a_list_of_other_files(
    forged: Path, project: Path, command: Command, tmp_path: Path
) -> None:
    """A kept list that states more bytes than there are: the Hub answers 416 to what is missing."""
    shutil.copy(project / "honest.lock", project / "kernelhub.lock")
    with scope(cache=tmp_path / "away"):
        assert command("sync", "--frozen").code == 0
        (listing,) = (tmp_path / "away").rglob("listing.json")
        entries = json.loads(listing.read_bytes())
        init = next(e for e in entries if e["path"].endswith("__init__.py"))
        init.update(size=init["size"] + 7, git_sha1="0" * 40)
        listing.write_text(json.dumps(entries))
        shutil.rmtree(listing.parent / "build")
        outcome = command("sync", "--frozen")
        assert outcome.code == 0, outcome.err
        assert get_kernel("trusted-org/k").NUMBER == 1
