"""`kernelhub verify`, `kernelhub cache prune|repair`, `kernelhub inspect`."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import published
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelhub import get_kernel, settings
from kernelhub.hints import look, summary
from kernelhub.serve.faults import Fault
from kernelhub.serve.testing import RunningHub
from kernelhub.settings import scope
from kernelhub.store import Store

Publish = Callable[..., str]
Command = Callable[..., Any]
ANY = {"trust_remote_code": True}

SUSPICIOUS = b"""
import os, subprocess as sp, ctypes
from urllib.request import urlopen
import torch, triton.language as tl
from . import other
import numpy.linalg

def run(path, mode):
    sp.run(["true"])
    os.environ["X"] = "1"
    open(path)
    open(path, "w").write("x")
    open(path, mode)
    path.write_text("x")
    eval("1")
    __import__(path)
    ctypes.CDLL("libc.so.6")
    torch.load(path)
"""


def folder_of(repo_id: str = "demo/k") -> Path:
    now = settings.current()
    everything = (stored for _, stored in Store(now.cache, now.endpoint).everything())
    return next(stored.folder for stored in everything if stored.receipt.repo_id == repo_id)


def test_verify(publish: Publish, project: Path, command: Command) -> None:
    publish("demo/k", published.variant())
    publish("demo/l", published.variant())
    (project / "kernel-requirements.txt").write_text("demo/k\ndemo/l\n")
    command("lock")
    outcome = command("verify")
    assert outcome.code == 0
    assert outcome.out.count("absent") == 2
    command("sync")
    outcome = command("verify")
    assert outcome.code == 0
    assert outcome.out.count("locked  signature: none") == 2
    (folder_of() / "__init__.py").write_bytes(b"evil")
    (folder_of("demo/l") / "stray.py").write_bytes(b"evil")
    outcome = command("verify", "--json")
    assert outcome.code == 3
    faults = {row["repo_id"]: row["fault"] for row in json.loads(outcome.out)["variants"]}
    assert "__init__.py: content differs" in faults["demo/k"]
    assert "stray.py: not part of what was published" in faults["demo/l"]


def test_repair(hub: RunningHub, publish: Publish, command: Command) -> None:
    publish("demo/k", published.variant())
    publish("demo/l", published.variant({"__init__.py": b"A = 1\n"}))
    get_kernel("demo/k==1", **ANY)
    get_kernel("demo/l==1", **ANY)
    hub.clear()
    assert "0 damaged" in command("cache", "repair").out
    assert hub.requests == []
    path = folder_of() / "__init__.py"
    path.write_bytes(b"evil")
    outcome = command("cache", "repair")
    assert outcome.code == 0
    assert "1 damaged, 1 repaired" in outcome.out
    assert path.read_bytes() == published.PLAIN
    path.write_bytes(b"evil")
    with scope(offline=True):
        outcome = command("cache", "repair")
        assert outcome.code == 3
        assert "removed: offline" in outcome.out
    assert not path.exists()
    assert command("verify").code == 0


@pytest.mark.parametrize("how", ["offline", "down"])
def test_a_repair_that_fails_takes_nothing_from_the_others(
    hub: RunningHub, publish: Publish, command: Command, project: Path, how: str
) -> None:
    """What the variants of a commit have in common stays where it cannot be had again."""
    publish("demo/k", published.variant() | published.variant(backend="cuda"))
    (project / "kernel-requirements.txt").write_text("demo/k==1\n")
    command("lock")
    assert command("sync", "--platform", "all").code == 0
    (folder_of().parent / "torch-cuda" / "__init__.py").write_bytes(b"evil")
    hub.faults.replace([Fault(effect="status", status=503)] if how == "down" else [])
    with scope(offline=how == "offline", timeout=1.0):
        outcome = command("cache", "repair")
        assert outcome.code == 3
        assert "1 damaged, 0 repaired" in outcome.out
    with scope(offline=True):
        assert get_kernel("demo/k==1").answer() == 42
        assert command("verify").code == 0


def test_a_copy_without_a_sound_receipt(publish: Publish, command: Command) -> None:
    publish("demo/k", published.variant())
    get_kernel("demo/k==1", **ANY)
    for offline in (False, True):
        folder = folder_of()
        receipt = folder.parents[1] / "receipts" / f"{folder.name}.json"
        receipt.write_bytes(b"") if offline else receipt.unlink()
        outcome = command("verify", "--no-lock")
        assert outcome.code == 3
        assert f"{folder}: its receipt is missing or damaged" in outcome.out
        with scope(offline=offline):
            outcome = command("cache", "repair")
        assert f"1 damaged, {0 if offline else 1} repaired" in outcome.out
        assert folder.is_dir() is not offline
        assert command("verify", "--no-lock").code == 0


def test_a_listing_that_was_tampered_with_is_repaired(publish: Publish, command: Command) -> None:
    publish("demo/k", published.variant())
    get_kernel("demo/k==1", **ANY)
    listing = folder_of().parents[1] / "listing.json"
    good = listing.read_bytes()
    value = json.loads(good)
    for file in value:
        file["git_sha1"] = "0" * 40
    listing.write_text(json.dumps(value))
    assert command("verify").code == 3
    assert command("cache", "repair").code == 0
    assert json.loads(listing.read_bytes()) == json.loads(good)


def test_what_cannot_be_checked_stays(hub: RunningHub, publish: Publish, command: Command) -> None:
    publish("demo/k", published.variant())
    get_kernel("demo/k==1", **ANY)
    listing = folder_of().parents[1] / "listing.json"
    listing.unlink()
    with scope(offline=True):
        outcome = command("cache", "repair")
        assert outcome.code == 3
        assert "cannot be checked" in outcome.out
    assert folder_of().is_dir()
    hub.clear()
    assert "0 damaged" in command("cache", "repair").out
    assert len(hub.requests) == 1, "its list of files, and no file"
    folder_of().joinpath("__init__.py").write_bytes(b"evil")
    with scope(endpoint="http://127.0.0.1:9"):
        outcome = command("cache", "repair")
    assert outcome.code == 3
    assert "removed: offline" in outcome.out, "another Hub's is not asked of this one"
    assert "0 variants" in command("cache", "list").out


def test_prune(publish: Publish, project: Path, command: Command) -> None:
    publish("demo/k", published.variant())
    publish("demo/l", published.variant({"__init__.py": b"A = 1\n"}))
    (project / "kernel-requirements.txt").write_text("demo/k\n")
    command("sync")
    get_kernel("demo/l==1", **ANY)
    assert "0 removed" in command("cache", "prune").out
    assert "1 would be removed" in command("cache", "prune", "--all", "--dry-run").out
    leftover = folder_of().parents[2] / "incoming" / "old"
    leftover.mkdir(parents=True, exist_ok=True)
    (leftover / "x.part").write_bytes(b"x" * 100)
    long_ago = time.time() - 3 * 24 * 3600
    unfinished = folder_of().parents[1] / ".listing.json.77-0a0b0c0d"
    unfinished.write_bytes(b"[")
    for path in (leftover, leftover / "x.part", unfinished):
        os.utime(path, (long_ago, long_ago))
    rows = json.loads(command("cache", "prune", "--older-than", "0", "--json").out)["removed"]
    assert [Path(row["path"]).name for row in rows] == [
        "torch-cpu", "old", unfinished.name,
    ]  # fmt: skip
    assert not leftover.exists()
    assert "demo/l" not in command("cache", "list").out
    assert "demo/k" in command("cache", "list").out, "it is locked"
    assert get_kernel("demo/k")


def test_inspect_runs_nothing(publish: Publish, project: Path, command: Command) -> None:
    files = {
        "__init__.py": b"raise SystemExit('ran')\n",
        "danger.py": SUSPICIOUS,
        "broken.py": b"def f(:\n",
        "lib.so": b"\x7fELF",
    }
    commit = publish("demo/k", published.variant(files))
    outcome = command("inspect", "demo/k")
    assert outcome.code == 0, outcome.err
    for text in (
        f"demo/k  version 1, commit {commit}",
        "publisher   demo (not marked as trusted by the Hub)",
        "allowed     no: ",
        "signature   none",
        "lock        not in a lock of this project",
        "imports     numpy, torch, triton",
        "starts programs: danger.py:2 subprocess, danger.py:9 subprocess.run",
        "opens network connections: danger.py:3 urllib.request.urlopen",
        "broken.py: SyntaxError",
        "lib.so: native code",
    ):
        assert text in outcome.out, outcome.out
    (project / "kernel-requirements.txt").write_text("demo/k\n")
    command("lock")
    outcome = command("inspect", "demo/k", "--json")
    value = json.loads(outcome.out)
    assert value["allowed"] == "yes, by lock"
    assert value["locked"].endswith("kernelhub.lock pins these bytes")
    assert value["content"].startswith("sha256:")
    outcome = command("inspect", "demo/k", "--variant", "torch-cuda")
    assert outcome.code == 1
    assert "publishes torch-cpu, and not torch-cuda" in outcome.err


def test_inspect_leaves_the_terminal_alone(publish: Publish, command: Command) -> None:
    files = published.variant()
    name = "build/torch-cpu/metadata.json"
    files[name] = files[name].replace(b"Apache-2.0", b"\\u001b[2J\\u202eMIT")
    publish("demo/k", files)
    outcome = command("inspect", "demo/k")
    assert "licence     ?[2J?MIT" in outcome.out
    assert "\x1b" not in outcome.out


def test_hints() -> None:
    found = look(SUSPICIOUS)
    assert found.imports == ("numpy", "torch", "triton")
    does = summary({"a.py": found})
    assert does["writes files"] == ("a.py:12 open", "a.py:13 open", "a.py:14 write_text")
    assert does["reads files"] == ("a.py:11 open",)
    assert does["runs text as code"] == ("a.py:15 eval",)
    assert does["imports by a computed name"] == ("a.py:16 __import__",)
    assert does["reads or sets the environment"] == ("a.py:10 os.environ",)
    assert "a.py:17 ctypes.CDLL" in does["calls native code"]
    assert does["unpickles, which can run code"] == ("a.py:18 torch.load",)
    assert look(b"import triton\n\n@triton.jit\ndef f(x): pass\n").hints == ()


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_source_is_looked_at(source: bytes) -> None:
    found = look(source)
    assert found.fault is None or not found.hints
