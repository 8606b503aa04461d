"""Locking, loading by a lock, syncing: against the embedded Hub, with its requests counted."""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import published
import pytest

from kernelhub import get_kernel, get_loaded_kernels, has_kernel, locks, settings
from kernelhub.errors import (
    FormatError,
    IntegrityError,
    LockError,
    NotCached,
    TrustError,
)
from kernelhub.formats.hf_lock import parse_hf_lock
from kernelhub.formats.lock import parse_lock
from kernelhub.serve.faults import Fault
from kernelhub.serve.testing import RunningHub
from kernelhub.settings import scope
from kernelhub.trust import Consent

Publish = Callable[..., str]
Command = Callable[..., Any]


def numbered(number: int, **facts: object) -> dict[str, bytes]:
    files = {"__init__.py": b"NUMBER = %d\n" % number}
    facts.setdefault("version", number)
    return published.variant(files, **facts)


def ask(project: Path, *lines: str) -> None:
    (project / "kernel-requirements.txt").write_text("\n".join(lines) + "\n")


def lock_of(project: Path):
    return parse_lock((project / "kernelhub.lock").read_bytes())


def forget() -> None:
    """What a new process would not know."""
    from kernelhub import freshness, verify

    freshness._asked_here.clear()
    verify._verified.clear()


def test_lock_then_load(hub: RunningHub, publish: Publish, project: Path, command: Command) -> None:
    commits = [publish("demo/k", numbered(n), version=n) for n in range(1, 4)]
    ask(project, "demo/k>=1,<3")
    outcome = command("lock")
    assert outcome.code == 0, outcome.err
    assert f"+ demo/k v2 ({commits[1][:12]})" in outcome.out
    assert [r.path.rpartition("/")[2] for r in hub.requests] == ["refs", "build", "metadata.json"]
    (kernel,) = lock_of(project).kernels
    assert (kernel.version, kernel.commit) == (2, commits[1])
    assert list(kernel.variants) == ["torch-cpu"]
    module = get_kernel("demo/k")  # no trust_remote_code: it is in the lock
    assert module.NUMBER == 2
    assert get_loaded_kernels()[-1].consent is Consent.LOCK
    hub.clear()
    forget()
    assert get_kernel("demo/k") is module
    assert get_kernel("demo/k>=2") is module
    assert get_kernel("demo/k", version=2) is module
    assert has_kernel("demo/k")
    assert hub.requests == []


def test_locking_again_changes_and_asks_nothing(
    hub: RunningHub, publish: Publish, project: Path, command: Command
) -> None:
    publish("demo/k", numbered(1), version=1)
    ask(project, "demo/k")
    command("lock")
    before = (project / "kernelhub.lock").read_bytes()
    publish("demo/k", numbered(2), version=2)
    outcome = command("lock")
    assert outcome.out.endswith("1 kernel, unchanged\n")
    assert hub.requests == []
    assert (project / "kernelhub.lock").read_bytes() == before
    with scope(cache=project / "other-cache"):  # the same on every machine
        (project / "kernelhub.lock").unlink()
        ask(project, "demo/k==1")
        command("lock")
    assert (project / "kernelhub.lock").read_bytes() == before.replace(b'"*"', b'"==1"')
    ask(project, "demo/k")
    outcome = command("lock", "--upgrade", "demo/k")
    assert sorted(line[:11] for line in outcome.out.splitlines()[:2]) == [
        "+ demo/k v2",
        "- demo/k v1",
    ]
    assert lock_of(project).kernels[0].version == 2
    assert command("lock", "--upgrade", "demo/other").code == 1


def test_kernels_that_kernels_need(
    hub: RunningHub, publish: Publish, project: Path, command: Command
) -> None:
    first = publish("demo/base", numbered(1, name="base-one"), version=1)
    second = publish("demo/base", numbered(2, name="base-two"), version=2)
    need = [{"repo-id": "demo/base", "version": 1}]
    code = b'from kernelhub import get_kernel_dep\nNUMBER = get_kernel_dep("demo/base").NUMBER\n'
    publish("demo/top", published.variant({"__init__.py": code}, needs=need, name="top-kernel"))
    ask(project, "demo/top", "demo/base")
    assert command("lock").code == 0
    lock = lock_of(project)
    assert [(k.repo_id, k.version, k.commit, k.requirement is not None) for k in lock.kernels] == [
        ("demo/base", 1, first, False),
        ("demo/base", 2, second, True),
        ("demo/top", 1, lock.kernels[2].commit, True),
    ]
    assert lock.kernels[2].dependencies == ("demo/base==1",)
    assert command("sync").code == 0
    hub.clear()
    assert get_kernel("demo/top").NUMBER == 1, "what it needs"
    assert get_kernel("demo/base").NUMBER == 2, "what the project asks for"
    assert hub.requests == []


def test_conflicts_name_the_chain(publish: Publish, project: Path, command: Command) -> None:
    publish("demo/base", numbered(1), version=1)
    publish("demo/base", numbered(2), version=2)
    publish("demo/mid", published.variant(needs=[{"repo-id": "demo/base", "version": 1}]))
    publish("demo/top", published.variant(needs=[{"repo-id": "demo/mid", "version": 1}]))
    ask(project, "demo/top", "demo/base>=2")
    outcome = command("lock")
    assert outcome.code == 1
    assert "demo/top (kernel-requirements.txt:1) -> demo/mid==1 -> demo/base==1" in outcome.err
    assert "demo/base>=2 (kernel-requirements.txt:2)" in outcome.err
    assert not (project / "kernelhub.lock").exists()
    ask(project, "demo/base>=2", "demo/base<2")
    outcome = command("lock")
    assert "published versions: 1, 2" in outcome.err
    assert "demo/base<2 (kernel-requirements.txt:2)" in outcome.err
    ask(project, "demo/base>=9")
    assert "published versions: 1, 2" in command("lock").err
    ask(project, "demo/base@main", "demo/base==1")
    assert "cannot both hold" in command("lock").err


def test_a_circle_names_its_kernels(publish: Publish, project: Path, command: Command) -> None:
    publish("demo/a", published.variant(needs=[{"repo-id": "demo/b", "version": 1}]))
    publish("demo/b", published.variant(needs=[{"repo-id": "demo/a", "version": 1}]))
    ask(project, "demo/a")
    outcome = command("lock")
    assert outcome.code == 1
    assert "demo/a (kernel-requirements.txt:1) -> demo/b==1 -> demo/a==1" in outcome.err


def test_other_bytes_than_the_lock_pins_are_refused(
    publish: Publish, project: Path, command: Command
) -> None:
    publish("demo/k", numbered(1))
    ask(project, "demo/k")
    command("lock")
    path = project / "kernelhub.lock"
    digest = lock_of(project).kernels[0].variants["torch-cpu"]
    path.write_text(path.read_text().replace(digest, "sha256:" + "1" * 64))
    for _ in range(2):
        with pytest.raises(IntegrityError, match="not what the lock pins") as caught:
            get_kernel("demo/k", trust_remote_code=True)
        assert "--upgrade demo/k" in caught.value.hint
    path.write_text(path.read_text().replace("torch-cpu", "torch-cuda"))
    with pytest.raises(IntegrityError, match="no such variant"):
        get_kernel("demo/k", trust_remote_code=True)


def test_kernels_without_a_digest_are_pinned_by_their_bytes(
    hub: RunningHub, publish: Publish, project: Path, command: Command
) -> None:
    files = numbered(1, digest=False) | {"build/torch-cpu/big.bin": b"\0" * 4000}
    publish("demo/k", files, lfs=["build/torch-cpu/big.bin"])
    ask(project, "demo/k")
    assert command("lock").code == 0
    asked = [r.path.rpartition("/")[2] for r in hub.requests]
    assert sorted(asked) == ["__init__.py", "build", "metadata.json", "refs"], "nothing of LFS"
    assert get_kernel("demo/k").NUMBER == 1
    loaded = get_loaded_kernels()[-1]
    (loaded.folder / "big.bin").write_bytes(b"\1" * 4000)
    forget()
    get_kernel("demo/k")
    assert (loaded.folder / "big.bin").read_bytes() == b"\0" * 4000, "it was fetched again"


def test_a_request_that_the_lock_does_not_hold(
    hub: RunningHub, publish: Publish, project: Path, command: Command
) -> None:
    first = publish("demo/k", numbered(1), version=1)
    second = publish("demo/k", numbered(2), version=2)
    publish("demo/other", numbered(1))
    ask(project, "demo/k==1")
    command("lock")
    with pytest.raises(LockError, match="holds demo/k at version 1"):
        get_kernel("demo/k==2", trust_remote_code=True)
    assert get_kernel("demo/k", revision=first).NUMBER == 1
    with pytest.raises(TrustError):
        get_kernel("demo/k", revision=second)  # a commit is a pin of its own, and no consent
    assert get_kernel("demo/k", revision=second, trust_remote_code=True).NUMBER == 2
    with pytest.raises(TrustError):
        get_kernel("demo/other")
    with scope(use_lock=False):
        assert get_kernel("demo/k==2", trust_remote_code=True).NUMBER == 2


def test_where_the_lock_is_found(
    publish: Publish, project: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish("demo/k", numbered(1))
    ask(project, "demo/k")
    command("lock")
    inner = project / "a" / "b"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    assert get_kernel("demo/k").NUMBER == 1
    monkeypatch.chdir(project.parent)
    with pytest.raises(TrustError):
        get_kernel("demo/k")
    monkeypatch.setenv("KERNELHUB_LOCK", str(project / "kernelhub.lock"))
    assert get_kernel("demo/k").NUMBER == 1
    monkeypatch.setenv("KERNELHUB_LOCK", "0")
    with pytest.raises(TrustError):
        get_kernel("demo/k")
    monkeypatch.delenv("KERNELHUB_LOCK")
    monkeypatch.setenv("KERNELHUB_PROJECT", str(project))
    assert get_kernel("demo/k").NUMBER == 1


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() != 0, reason="only root gives away")
def test_a_lock_that_somebody_else_left_is_no_consent(
    publish: Publish,
    project: Path,
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    publish("demo/k", numbered(1), version=1)
    publish("demo/k", numbered(2), version=2)
    ask(project, "demo/k==1")
    command("lock")
    os.chown(project / "kernelhub.lock", 12345, 12345)
    with caplog.at_level(logging.WARNING), pytest.raises(TrustError):
        get_kernel("demo/k")
    assert "belongs to another user" in caplog.text
    assert get_kernel("demo/k", trust_remote_code=True).NUMBER == 1, "its pins count"
    monkeypatch.setenv("KERNELHUB_LOCK", str(project / "kernelhub.lock"))
    assert get_kernel("demo/k").NUMBER == 1


@pytest.mark.skipif(sys.platform == "win32", reason="no modes")
@pytest.mark.parametrize(
    ("mode", "folder", "doubt"),
    [
        (0o664, 0o775, ""),  # umask 002, and a group of one's own
        (0o644, 0o1777, ""),
        (0o666, 0o755, "may be written by any user"),
        (0o646, 0o755, "may be written by any user"),
        (0o644, 0o777, "is in a folder that any user may write to"),
    ],
)
def test_a_lock_that_others_may_write_is_no_consent(
    publish: Publish,
    project: Path,
    command: Command,
    caplog: pytest.LogCaptureFixture,
    mode: int,
    folder: int,
    doubt: str,
) -> None:
    publish("demo/k", numbered(1))
    ask(project, "demo/k")
    command("lock")
    (project / "kernelhub.lock").chmod(mode)
    project.chmod(folder)
    if not doubt:
        assert get_kernel("demo/k").NUMBER == 1
        return
    with caplog.at_level(logging.WARNING), pytest.raises(TrustError):
        get_kernel("demo/k")
    assert doubt in caplog.text
    with scope(lock=project / "kernelhub.lock"):
        assert get_kernel("demo/k").NUMBER == 1, "it was named"


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() != 0, reason="only root gives away")
def test_a_lock_that_another_group_may_write_is_no_consent(
    publish: Publish, project: Path, command: Command, caplog: pytest.LogCaptureFixture
) -> None:
    publish("demo/k", numbered(1))
    ask(project, "demo/k")
    command("lock")
    os.chown(project / "kernelhub.lock", -1, 12345)
    assert get_kernel("demo/k").NUMBER == 1
    (project / "kernelhub.lock").chmod(0o664)
    with caplog.at_level(logging.WARNING), pytest.raises(TrustError):
        get_kernel("demo/k")
    assert "a group that is not your own" in caplog.text


def test_a_package_ships_its_lock(
    publish: Publish,
    project: Path,
    command: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    publish("demo/k", numbered(1), version=1)
    publish("demo/k", numbered(2), version=2)
    ask(project, "demo/k==1")
    command("lock")
    site = tmp_path / "site"
    (site / "my_models").mkdir(parents=True)
    (site / "my_models/__init__.py").write_text(
        "from kernelhub import get_kernel\ndef load(): return get_kernel('demo/k')\n"
    )
    shutil.move(project / "kernelhub.lock", site / "my_models/kernelhub.lock")
    monkeypatch.syspath_prepend(str(site))
    import my_models

    with pytest.raises(TrustError):
        my_models.load()  # a lock that no metadata announces is any file
    info = site / "my_models-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-models\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[kernelhub.lock]\nmy-models = my_models\n")
    locks._announced.cache_clear()
    try:
        assert my_models.load().NUMBER == 1
        with pytest.raises(TrustError):
            get_kernel("demo/k")  # the package's lock is for what the package asks
        ask(project, "demo/k==2")
        command("lock")
        assert my_models.load().NUMBER == 2, "the project's lock comes first"
    finally:
        locks._announced.cache_clear()


def test_a_damaged_lock_is_never_passed_over(publish: Publish, project: Path) -> None:
    publish("demo/k", numbered(1))
    (project / "kernelhub.lock").write_text("schema = 9\n")
    for trust in (False, True):
        with pytest.raises(FormatError, match="newer kernelhub"):
            get_kernel("demo/k", trust_remote_code=trust)


def test_sync(hub: RunningHub, publish: Publish, project: Path, command: Command) -> None:
    files = numbered(1) | numbered(1, backend="cuda") | numbered(1, backend="rocm")
    publish("demo/k", files)
    publish("demo/gpu", numbered(1, backend="tpu"))
    ask(project, "demo/k")
    outcome = command("sync", "--json")
    (row,) = json.loads(outcome.out)["kernels"]
    assert (row["variant"], row["fetched"]) == ("torch-cpu", True)
    assert (project / "kernelhub.lock").exists()
    outcome = command("sync", "--json", "--platform", "cuda", "--platform", "torch-cpu")
    rows = json.loads(outcome.out)["kernels"]
    assert [(r["variant"], r["fetched"]) for r in rows] == [
        ("torch-cpu", False),
        ("torch-cuda", True),
    ]
    assert len(json.loads(command("sync", "--json", "--platform", "all").out)["kernels"]) == 3
    assert command("sync", "--platform", "gpu").code == 1
    hub.clear()
    assert command("sync").code == 0
    assert hub.requests == []
    ask(project, "demo/k", "demo/gpu")
    outcome = command("sync")
    assert outcome.code == 1
    assert "demo/gpu: torch-tpu: is for tpu" in outcome.err


def test_sync_frozen(publish: Publish, project: Path, command: Command) -> None:
    publish("demo/k", numbered(1))
    publish("demo/l", numbered(1))
    ask(project, "demo/k")
    assert "does not exist" in command("sync", "--frozen").err
    command("lock")
    before = (project / "kernelhub.lock").read_bytes()
    assert command("sync", "--frozen").code == 0
    for lines, text in (
        (["demo/k==1"], "demo/k==1 is asked for"),
        (["demo/k", "demo/l"], "demo/l (kernel-requirements.txt:2) is not in the lock"),
        (["# nothing"], "demo/k is in the lock, and nobody asks for it"),
    ):
        ask(project, *lines)
        outcome = command("sync", "--frozen")
        assert outcome.code == 1
        assert text in outcome.err
        check = command("lock", "--check")
        assert check.code == 3
        assert text in check.out
    assert (project / "kernelhub.lock").read_bytes() == before


def edit(project: Path, old: str, new: str) -> None:
    """Change a lock by hand."""
    path = project / "kernelhub.lock"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.mark.parametrize("stated", ["version = 7\n", "", "version = 0\n"])
def test_a_locked_version_satisfies_its_requirement(
    publish: Publish, project: Path, command: Command, stated: str
) -> None:
    publish("demo/k", numbered(2), version=2)
    ask(project, "demo/k>=1,<3")
    assert command("lock").code == 0
    edit(project, "version = 2\n", stated)
    check = command("lock", "--check")
    assert check.code == 3
    assert "which does not satisfy it" in check.out
    frozen = command("sync", "--frozen")
    assert frozen.code == 1
    assert "which does not satisfy it" in frozen.err
    assert command("lock").code == 0, "it is put right"
    assert lock_of(project).kernels[0].version == 2


def test_a_locked_commit_is_the_one_that_is_asked_for(
    publish: Publish, project: Path, command: Command
) -> None:
    first, second = (publish("demo/k", numbered(n), version=n) for n in (1, 2))
    ask(project, f"demo/k@{first}")
    assert command("lock").code == 0
    edit(project, f'commit = "{first}"', f'commit = "{second}"')
    assert "which is another" in command("lock", "--check").out


def test_a_version_is_believed_that_the_kernel_states(
    publish: Publish, project: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a lock claims of bytes does not leave the project, by a load or by the cache."""
    publish("demo/k", numbered(2), version=2)
    ask(project, "demo/k")
    assert command("lock").code == 0
    edit(project, "version = 2", "version = 7")
    with pytest.raises(LockError, match=r"as version 7, and its metadata states version 2"):
        get_kernel("demo/k==7")
    synced = command("sync", "--frozen")
    assert synced.code == 1
    assert "as version 7, and its metadata states version 2" in synced.err
    assert "as version 7, and its metadata states version 2" in command("verify").out
    monkeypatch.chdir(project.parent)
    with scope(offline=True):
        with pytest.raises(NotCached):
            get_kernel("demo/k==7", trust_remote_code=True)
        assert get_kernel("demo/k==2", trust_remote_code=True).NUMBER == 2


def test_a_version_that_states_another_is_not_locked(
    publish: Publish, project: Path, command: Command
) -> None:
    publish("demo/k", numbered(1), version=2)
    ask(project, "demo/k")
    outcome = command("lock")
    assert outcome.code == 1
    assert "as version 2, and torch-cpu/metadata.json there states version 1" in outcome.err


@pytest.mark.parametrize("how", ["offline", "down"])
def test_an_upgrade_asks_the_hub_or_fails(
    hub: RunningHub, publish: Publish, project: Path, command: Command, how: str
) -> None:
    """What is remembered is what there was; an upgrade is about what there is."""
    publish("demo/k", numbered(1))
    ask(project, "demo/k")
    command("sync")
    before = (project / "kernelhub.lock").read_bytes()
    hub.faults.replace([Fault(effect="status", status=503)] if how == "down" else [])
    with scope(offline=how == "offline", timeout=1.0):
        assert command("lock", "--upgrade-all").code == 1
        assert command("lock").code == 0
    assert (project / "kernelhub.lock").read_bytes() == before


def test_offline_by_version_after_sync(
    hub: RunningHub, publish: Publish, project: Path, command: Command, tmp_path: Path
) -> None:
    publish("demo/k", numbered(1))
    ask(project, "demo/k")
    command("sync")
    hub.clear()
    with scope(offline=True):
        assert get_kernel("demo/k").NUMBER == 1
        assert command("sync", "--frozen").code == 0
        with scope(use_lock=False):
            assert get_kernel("demo/k", version=1, trust_remote_code=True).NUMBER == 1
        with scope(cache=tmp_path / "empty"), pytest.raises(NotCached):
            get_kernel("demo/k")
        with scope(cache=tmp_path / "empty"):
            synced = command("sync", "--frozen")
        assert synced.code == 1
        assert "offline, and not on this disk: demo/k" in synced.err
        assert "for this platform" not in synced.err
    assert hub.requests == []


def test_hf_locks_in_and_out(publish: Publish, project: Path, command: Command) -> None:
    first = publish("demo/k", numbered(1), version=1)
    moved = publish(
        "demo/k", numbered(1) | published.variant({"__init__.py": b"NUMBER = 11\n"}), version=1
    )
    assert moved != first
    (project / "pyproject.toml").write_text('[tool.kernels.dependencies]\n"demo/k" = 1\n')
    entry = {"dependency": {"repo-id": "demo/k", "version": 1}, "lock": {"commit": first}}
    (project / "kernels.lock").write_text(json.dumps([entry]))
    written = ("--hf", "new.json", "--hf-old", "old.json")
    outcome = command("lock", "--from-hf", "kernels.lock", *written)
    assert outcome.code == 0, outcome.err
    assert lock_of(project).kernels[0].commit == first, "HF's pin is kept, though v1 has moved"
    assert json.loads((project / "new.json").read_bytes()) == [entry]
    (old,) = parse_hf_lock((project / "old.json").read_bytes())
    assert old.commit == first
    assert list(old.hashes) == ["torch-cpu"]
    (project / "kernelhub.lock").unlink()
    assert command("lock", "--from-hf", "old.json").code == 0
    assert lock_of(project).kernels[0].commit == first
    (project / "kernelhub.lock").unlink()
    forged = (project / "old.json").read_text().replace(old.hashes["torch-cpu"][-8:], "0" * 8)
    (project / "old.json").write_text(forged)
    outcome = command("lock", "--from-hf", "old.json")
    assert outcome.code == 1
    assert "torch-cpu: is not what the lock was made from" in outcome.err


def test_requirements_that_are_named(
    publish: Publish, project: Path, command: Command, tmp_path: Path
) -> None:
    publish("demo/k", numbered(1))
    named = tmp_path / "elsewhere" / "gpu.txt"
    named.parent.mkdir()
    named.write_text("demo/k\n")
    assert "states requirements" in command("lock").err
    assert command("lock", "-r", named).code == 0
    assert lock_of(project).kernels[0].repo_id == "demo/k"
    assert command("sync", "--frozen", "-r", named).code == 0
    other = tmp_path / "other"
    other.mkdir()
    ask(other, "demo/k==1")
    assert command("lock", "--project", other).code == 0
    assert lock_of(other).kernels[0].version == 1
    assert command("verify", "--project", other).code == 0


def test_a_lock_is_read_once(publish: Publish, project: Path, command: Command) -> None:
    publish("demo/k", numbered(1))
    ask(project, "demo/k")
    command("lock")
    file = locks.project_lock(settings.current())
    again = locks.project_lock(settings.current())
    assert file is not None
    assert again is not None
    assert again.lock is file.lock
