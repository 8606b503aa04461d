"""What is on disk: concurrent writers, killed servers, plain git."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kernelhub.errors import HubUnavailable
from kernelhub.serve.address import RepoId
from kernelhub.serve.limits import Limits
from kernelhub.serve.refusal import Refusal
from kernelhub.serve.repositories import Repositories
from kernelhub.serve.testing import hub_process, running_hub

API = "/api/kernels/demo/k"


def git(folder, *words):
    done = subprocess.run(
        ["git", "-C", str(folder), *words], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_git_clones_fetches_and_agrees(hub, client, ask, make_repo, commit, tmp_path):
    make_repo(hub.url, "demo/k")
    commit(hub.url, "demo/k", {"a b/ü.txt": b"one"})
    ask(hub.url, "POST", f"{API}/branch/v1", {})
    ask(hub.url, "POST", f"{API}/tag/v1", {"tag": "t", "message": "words"})
    clone = tmp_path / "clone"
    client(hub.url, "git", "clone", "-q", f"{hub.url}/kernels/demo/k.git", clone)
    assert (clone / "a b" / "ü.txt").read_text() == "one"
    commit(hub.url, "demo/k", {"two.txt": b"two"}, revision="v1")
    client(hub.url, "git", "-C", clone, "fetch", "-q", "--tags")
    assert git(clone, "show", "origin/v1:two.txt") == "two"
    assert git(clone, "cat-file", "-t", "t").strip() == "tag"
    git(hub.root / "kernels/demo/k.git", "fsck", "--strict")
    shallow = tmp_path / "shallow"
    options = ("clone", "-q", "--depth", "1", "--branch", "v1")
    client(hub.url, "git", *options, f"{hub.url}/kernels/demo/k", shallow)
    assert (shallow / "two.txt").exists()
    push = client(hub.url, "git", "-C", clone, "push", "origin", "HEAD:x", check=False)
    assert push.returncode != 0


def test_concurrent_commits_lose_nothing(hub, ask, make_repo, commit):
    make_repo(hub.url, "demo/k")
    with ThreadPoolExecutor(12) as pool:
        answers = list(
            pool.map(lambda n: commit(hub.url, "demo/k", {f"f{n}": str(n).encode()}), range(40))
        )
    assert {answer.status for answer in answers} == {200}
    names = {entry["path"] for entry in ask(hub.url, "GET", f"{API}/tree/main").json}
    assert names == {".gitattributes", *(f"f{n}" for n in range(40))}
    assert len(ask(hub.url, "GET", f"{API}/commits/main").json) == 41


def test_of_writers_with_one_parent_exactly_one_wins(hub, ask, make_repo, commit):
    make_repo(hub.url, "demo/k")
    head = ask(hub.url, "GET", API).json["sha"]
    with ThreadPoolExecutor(8) as pool:
        answers = list(
            pool.map(
                lambda n: commit(hub.url, "demo/k", {"f": str(n).encode()}, parent=head[:12]),
                range(8),
            )
        )
    assert sorted(answer.status for answer in answers) == [200] + [412] * 7


def test_a_commit_that_changes_nothing_makes_none(hub, ask, make_repo, commit):
    make_repo(hub.url, "demo/k")
    first = commit(hub.url, "demo/k", {"f": b"1"}).json["commitOid"]
    assert commit(hub.url, "demo/k", {"f": b"1"}).json["commitOid"] == first
    assert len(ask(hub.url, "GET", f"{API}/commits/main").json) == 2


def test_creating_and_deleting_at_once(hub, make_repo, ask):
    body = {"type": "kernel", "organization": "demo", "name": "k"}
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: make_repo(hub.url, "demo/k").status, range(8)))
        gone = list(
            pool.map(lambda _: ask(hub.url, "DELETE", "/api/repos/delete", body).status, range(8))
        )
    assert sorted(made) == [200] + [409] * 7
    assert sorted(gone) == [200] + [404] * 7
    assert not list((hub.root / ".hub" / "incoming").iterdir())


def test_a_writer_waits_for_another_and_gives_up_in_time(tmp_path):
    repositories = Repositories(tmp_path, lock_seconds=0.2)
    repo_id = RepoId.of("kernel", "demo", "k")
    repositories.create(repo_id, private=False)
    with repositories.writing(repo_id):
        refusals = []

        def second():
            try:
                with repositories.writing(repo_id):
                    pass
            except Refusal as refusal:
                refusals.append(refusal)

        thread = threading.Thread(target=second)
        thread.start()
        thread.join()
    assert [refusal.status for refusal in refusals] == [503]
    assert "Retry-After" in refusals[0].headers
    with repositories.writing(repo_id):
        pass


def test_lock_files_of_a_dead_writer_are_cleared(tmp_path):
    repositories = Repositories(tmp_path, lock_seconds=5)
    repo_id = RepoId.of("kernel", "demo", "k")
    repositories.create(repo_id, private=False)
    folder = repositories.folder(repo_id)
    (folder / "hub.writing").touch()  # as a killed process leaves it
    (folder / "refs/heads/main.lock").touch()
    with repositories.writing(repo_id) as repository:
        head = repository.commit_of("main")
        tree = repository.commit_object(head).tree
        commit = repository.commit(tree, head, "after", "me")
        repository.move_ref("refs/heads/main", head, commit)
    assert not list(folder.rglob("*.lock"))
    assert not (folder / "hub.writing").exists()


@pytest.mark.parametrize("seed", range(4))
def test_a_server_killed_at_any_moment_leaves_whole_commits(tmp_path, seed, make_repo, commit):
    """Whatever was acknowledged is there, every ref is at a whole commit, and writing goes on."""
    rng = random.Random(seed)
    root, done = tmp_path / "hub", 0
    with hub_process(root) as (url, process):
        make_repo(url, "demo/k")
        timer = threading.Timer(rng.uniform(0.02, 0.4), os.kill, (process.pid, signal.SIGKILL))
        timer.start()
        try:
            for number in range(1000):
                files = {f"d{number}/f{n}": os.urandom(20).hex().encode() for n in range(20)}
                if commit(url, "demo/k", files).status != 200:
                    break
                done = number + 1
        except OSError:  # the server is gone
            pass
        timer.join()
        process.wait()
    folder = root / "kernels/demo/k.git"
    git(folder, "fsck", "--strict")
    with running_hub(root) as hub:
        assert commit(hub.url, "demo/k", {"after": b"1"}).status == 200
    names = set(git(folder, "ls-tree", "-r", "--name-only", "main").split())
    assert {f"d{number}/f{n}" for number in range(done) for n in range(20)} <= names
    assert "after" in names
    git(folder, "fsck", "--strict")


def test_two_server_processes_share_a_root(tmp_path, make_repo, commit, ask):
    root = tmp_path / "hub"
    with running_hub(root) as first, hub_process(root) as (second, _):
        make_repo(first.url, "demo/k")
        with ThreadPoolExecutor(8) as pool:
            urls = [first.url, second] * 10
            answers = list(
                pool.map(
                    lambda n: commit(urls[n], "demo/k", {f"f{n}": b"x%d" % n}).status, range(20)
                )
            )
        assert set(answers) == {200}
        for url in (first.url, second):
            assert len(ask(url, "GET", f"{API}/tree/main").json) == 21


def test_a_server_that_cannot_start_says_so(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(HubUnavailable, match="file"), hub_process(tmp_path / "file"):
        pass


def test_what_a_killed_server_left_is_removed_in_time(tmp_path):
    repositories = Repositories(tmp_path, lock_seconds=1)
    old, young = repositories.incoming / "incoming-old", repositories.incoming / "incoming-young"
    (repositories.incoming / "repository-old" / "objects").mkdir(parents=True)
    old.touch()
    young.touch()
    for path in (old, repositories.incoming / "repository-old"):
        os.utime(path, (0, 0))
    again = Repositories(tmp_path, lock_seconds=1)
    assert list(again.incoming.iterdir()) == [young]


def test_pages_of_one_listing_agree_while_the_branch_moves(tmp_path, ask, make_repo, commit):
    with running_hub(tmp_path / "hub", limits=Limits(page=4)) as hub:
        make_repo(hub.url, "demo/k")
        commit(hub.url, "demo/k", {f"f{n}": b"1" for n in range(9)})
        path, names = f"{API}/tree/main?recursive=true", []
        for page in range(3):
            answer = ask(hub.url, "GET", path)
            names += [entry["path"] for entry in answer.json]
            commit(hub.url, "demo/k", {f"a{page}": b"1", f"f{page}": None})
            link = answer.headers.get("link", "")
            path = link.partition(hub.url)[2].partition(">")[0]
        assert names == [".gitattributes", *(f"f{n}" for n in range(9))]
        assert path == ""
        log = ask(hub.url, "GET", f"{API}/commits/main")
        assert len(log.json) == 4
        assert 'rel="next"' in log.headers["link"]


@pytest.mark.slow
def test_large_files_stream_through_a_small_server(tmp_path, client):
    code = """
import json, os, resource, sys
from huggingface_hub import CommitOperationAdd, HfApi, hf_hub_download
api, of = HfApi(), {"repo_type": "model"}
api.create_repo("demo/large", **of)
with open(sys.argv[1], "wb") as file:
    for _ in range(200):
        file.write(os.urandom(1 << 20))
with open(sys.argv[1], "rb") as file:
    add = CommitOperationAdd("large.bin", file)
    api.create_commit("demo/large", operations=[add], commit_message="m", **of)
import filecmp
assert filecmp.cmp(hf_hub_download("demo/large", "large.bin", **of), sys.argv[1], shallow=False)
"""
    with hub_process(tmp_path / "hub") as (url, process):

        def peak_mib():
            status = Path(f"/proc/{process.pid}/status").read_text()
            return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1024

        before = peak_mib()
        began = time.monotonic()
        client(url, sys.executable, "-c", code, tmp_path / "data")
        grown = peak_mib() - before
        print(json.dumps({"grown_mib": grown, "seconds": time.monotonic() - began}))
        assert grown < 64
