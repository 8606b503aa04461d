"""Publishing to a live Hub: one commit per branch, none without a change, no surprises."""

from __future__ import annotations

import re

import pytest

from kernel_builder.hub import Hub
from kernel_builder.hub_errors import CommitRaced
from kernel_builder.pack import build
from kernel_builder.project import Project
from kernel_builder.publish import BreakingChange, Options, publish
from kernelhub.errors import (
    HubError,
    InputError,
    IntegrityError,
    RepositoryNotFound,
)
from kernelhub.reporter import Reporter
from kernelhub.serve.faults import Fault

REPO = "demo/my-relu"


def built(root):
    project = Project.open(root)
    build(project)
    return project


def send(hub, project, **options):
    return publish(project, Hub(hub.url), Options(repo_id=REPO, **options))


def branch_files(hub, branch):
    client = Hub(hub.url)
    return {f.path for f in client.tree(REPO, client.refs(REPO).branches[branch])}


def commits(hub):
    return [r for r in hub.requests if r.method == "POST" and re.search(r"/commit/", r.path)]


def writes(hub):
    return [r for r in hub.requests if r.method not in ("GET", "HEAD")]


def test_first_publication(hub, make_project):
    done = send(hub, built(make_project()))
    assert done.created
    assert [r.plan.branch for r in done.branches] == ["v1", "main"]
    assert len(commits(hub)) == 2
    assert branch_files(hub, "v1") == {
        ".gitattributes",
        *(
            f"build/{variant}/{name}"
            for variant in ("torch-cpu", "torch-cuda")
            for name in ("__init__.py", "_ops.py", "metadata.json")
        ),
    }
    assert branch_files(hub, "main") == {".gitattributes", "README.md"}


def test_same_bytes_again_make_no_commit(hub, make_project):
    project = built(make_project({"data.bin": bytes(range(256)) * 10_000}))
    send(hub, project)
    hub.clear()
    done = send(hub, built(make_project({"data.bin": bytes(range(256)) * 10_000})))
    assert all(r.plan.is_empty and r.committed is None for r in done.branches)
    assert writes(hub) == []
    assert len(hub.requests) == 3  # the branches, and a listing of each


def test_one_commit_adds_updates_and_removes(hub, make_project):
    send(hub, built(make_project({"old.py": "", "same.py": "x = 1\n"})))
    before = Hub(hub.url).refs(REPO).branches
    hub.clear()
    root = make_project({"new.py": "", "same.py": "x = 1\n"}, backends=("cpu", "rocm"))
    (root / "torch-ext" / "my_relu" / "old.py").unlink()
    done = send(hub, built(root), allow_breaking=True)
    plan = done.branches[0].plan
    assert "build/torch-rocm/same.py" in plan.added
    assert "build/torch-cpu/new.py" in plan.added
    assert "build/torch-cpu/metadata.json" in plan.updated
    assert "build/torch-cpu/same.py" in plan.unchanged
    assert {"build/torch-cpu/old.py", "build/torch-cuda/__init__.py"} <= set(plan.deleted)
    assert plan.parent == before["v1"]
    assert len([r for r in commits(hub) if r.path.endswith("/v1")]) == 1
    assert not any("cuda" in path or "old" in path for path in branch_files(hub, "v1"))


def test_dry_run_touches_nothing(hub, make_project):
    project = built(make_project())
    done = send(hub, project, dry_run=True)
    assert done.created
    assert len(done.branches[0].plan.added) == 6
    assert writes(hub) == []
    send(hub, project)
    hub.clear()
    project = built(make_project({"new.py": ""}))
    done = send(hub, project, dry_run=True)
    assert "build/torch-cpu/new.py" in done.branches[0].plan.added
    assert writes(hub) == []


def test_a_new_version_starts_without_stray_files(hub, make_project):
    send(hub, built(make_project()))
    client = Hub(hub.url)
    client._api.upload_file(
        path_or_fileobj=b"stray", path_in_repo="notes.txt", repo_id=REPO, repo_type="kernel"
    )
    send(hub, built(make_project(version=2)))
    assert branch_files(hub, "v2") == branch_files(hub, "v1")
    assert "notes.txt" in branch_files(hub, "main")


def test_files_outside_build_stay_on_an_existing_branch(hub, make_project):
    send(hub, built(make_project()))
    Hub(hub.url)._api.upload_file(
        path_or_fileobj=b"#",
        path_in_repo="benchmarks/benchmark.py",
        repo_id=REPO,
        repo_type="kernel",
        revision="v1",
    )
    send(hub, built(make_project({"new.py": ""})))
    assert "benchmarks/benchmark.py" in branch_files(hub, "v1")


def test_pull_request_leaves_the_branches(hub, make_project):
    send(hub, built(make_project()))
    before = Hub(hub.url).refs(REPO)
    done = send(hub, built(make_project({"new.py": ""})), create_pr=True)
    after = Hub(hub.url).refs(REPO)
    assert after.branches == before.branches
    version, card = done.branches
    assert re.search(r"/discussions/\d+$", version.committed.pull_request)
    assert card.committed is None  # the card did not change
    assert len(after.pull_requests) == 1
    (head,) = after.pull_requests.values()
    assert "build/torch-cpu/new.py" in {f.path for f in Hub(hub.url).tree(REPO, head)}


def test_pull_request_to_a_missing_repository(hub, make_project):
    with pytest.raises(RepositoryNotFound):
        send(hub, built(make_project()), create_pr=True)
    assert writes(hub) == []


SCALED = "def relu(x, factor): ...\n__all__ = ['relu']\n"


def test_breaking_change_is_refused_and_named(hub, make_project):
    send(hub, built(make_project()))
    hub.clear()
    project = built(make_project({"__init__.py": SCALED}))
    with pytest.raises(BreakingChange) as caught:
        send(hub, project)
    assert {item.name for item in caught.value.breaks} == {"relu"}
    text = str(caught.value)
    assert "v1" in text
    assert "parameter was removed (scale)" in text
    assert "parameter was added as required (factor)" in text
    assert "version" in (caught.value.hint or "")
    assert writes(hub) == []
    with pytest.raises(BreakingChange):
        send(hub, project, dry_run=True)
    assert send(hub, project, allow_breaking=True).breaks


def with_requirement(root, specifier):
    text = (root / "build.toml").read_text()
    (root / "build.toml").write_text(f'{text}\n[general.requires]\ntriton = "{specifier}"\n')
    return built(root)


@pytest.mark.parametrize(
    ("old", "new", "breaks"),
    [(">=3.2", ">=3.4", True), (">=3.4", ">=3.2", False), (">=3.2", ">=3.2,<4", True)],
)
def test_stricter_requirements_break(hub, make_project, old, new, breaks):
    send(hub, with_requirement(make_project(), old))
    project = with_requirement(make_project(), new)
    if breaks:
        with pytest.raises(BreakingChange, match="triton: now requires"):
            send(hub, project)
    else:
        assert send(hub, project).breaks == ()


def test_a_variant_that_is_gone_breaks(hub, make_project):
    send(hub, built(make_project()))
    with pytest.raises(BreakingChange, match="torch-cpu: this variant is no longer built"):
        send(hub, built(make_project(backends=("cuda",))))
    assert send(hub, built(make_project(backends=("cpu", "cuda", "xpu")))).breaks == ()


def test_async_breaks(hub, make_project):
    source = "__all__ = ['relu', 'L']\ndef relu(x): ...\nclass L:\n    def run(self): ...\n"
    send(hub, built(make_project({"__init__.py": source})))
    project = built(make_project({"__init__.py": source.replace("def ", "async def ")}))
    with pytest.raises(BreakingChange) as caught:
        send(hub, project)
    assert {str(item) for item in caught.value.breaks} == {
        "relu: is now async",
        "L.run: is now async",
    }


def test_breaking_change_with_a_new_version(hub, make_project):
    send(hub, built(make_project()))
    done = send(hub, built(make_project({"__init__.py": SCALED}, version=2)))
    assert done.breaks == ()
    assert Hub(hub.url).refs(REPO).branches.keys() == {"main", "v1", "v2"}


def test_version_0_promises_nothing(hub, make_project):
    send(hub, built(make_project(version=0)))
    assert send(hub, built(make_project({"__init__.py": SCALED}, version=0))).breaks


def test_the_comparison_downloads_one_variant_only(hub, make_project):
    send(hub, built(make_project({"data.json": "{}"})))
    hub.clear()
    send(hub, built(make_project({"data.json": "{} "})))
    fetched = {r.path for r in hub.requests if r.method == "GET" and "/resolve/" in r.path}
    assert {path.rsplit("/build/", 1)[1] for path in fetched} == {
        "torch-cpu/__init__.py",
        "torch-cpu/_ops.py",
        "torch-cuda/metadata.json",
    }


def test_published_sources_that_do_not_parse(hub, make_project):
    project = built(make_project())
    send(hub, project)
    Hub(hub.url)._api.upload_file(
        path_or_fileobj=b"def (",
        path_in_repo="build/torch-cpu/__init__.py",
        repo_id=REPO,
        repo_type="kernel",
        revision="v1",
    )
    with pytest.raises(BreakingChange, match="cannot be compared"):
        send(hub, project)
    assert send(hub, project, allow_breaking=True).branches[0].committed is not None


def test_stale_unbuilt_and_damaged_builds_are_not_published(hub, make_project):
    root = make_project()
    with pytest.raises(InputError, match="holds no build"):
        send(hub, Project.open(root))
    built(root)
    make_project({"new.py": ""})
    with pytest.raises(InputError, match="not of the present sources"):
        send(hub, Project.open(root))
    project = built(root)
    (root / "build" / "torch-cpu" / "new.py").write_text("import os")
    with pytest.raises(IntegrityError):
        send(hub, project)
    assert hub.requests == []


def test_a_build_that_changes_under_way_is_not_published(hub, make_project):
    root = make_project()
    project = built(root)

    class Meddler(Reporter):
        def stage(self, name, total=None, unit=""):
            if name == "publish v1":
                (root / "build" / "torch-cpu" / "_ops.py").write_text("import os")

    with pytest.raises(IntegrityError, match="changed while it was published"):
        publish(project, Hub(hub.url), Options(repo_id=REPO), reporter=Meddler())
    assert commits(hub) == []


def test_two_publishers_do_not_mix(hub, make_project):
    send(hub, built(make_project()))
    ours = built(make_project({"ours.py": ""}, folder="ours"))
    theirs = built(make_project({"theirs.py": ""}, folder="theirs"))

    class Other(Reporter):
        def stage(self, name, total=None, unit=""):
            if name == "publish v1":
                send(hub, theirs)

    with pytest.raises(CommitRaced, match="moved on") as caught:
        publish(ours, Hub(hub.url), Options(repo_id=REPO), reporter=Other())
    assert caught.value.status == 412
    files = branch_files(hub, "v1")
    assert "build/torch-cpu/theirs.py" in files
    assert "build/torch-cpu/ours.py" not in files
    send(hub, ours)
    assert "build/torch-cpu/ours.py" in branch_files(hub, "v1")


def branches(hub):
    return set(Hub(hub.url).refs(REPO).branches)


def test_a_pull_request_for_a_new_version_makes_no_branch(hub, make_project):
    send(hub, built(make_project()))
    main = branch_files(hub, "main")
    done = send(hub, built(make_project(version=2)), create_pr=True)
    assert branches(hub) == {"main", "v1"}
    assert branch_files(hub, "main") == main
    assert "v2 does not exist yet" in done.branches[0].note
    # A maintainer makes the branch of it, as its text says.
    ref = "refs/pr/" + done.branches[0].committed.pull_request.rsplit("/", 1)[1]
    Hub(hub.url)._api.create_branch(REPO, branch="v2", revision=ref, repo_type="kernel")
    assert send(hub, built(make_project(version=2))).branches[0].committed is None
    assert branch_files(hub, "v1") <= branch_files(hub, "v2")


def test_the_same_pull_request_is_opened_once(hub, make_project):
    send(hub, built(make_project()))
    for version in (1, 2):
        project = built(make_project({"new.py": ""}, version=version))
        first = send(hub, project, create_pr=True)
        before = Hub(hub.url).refs(REPO).pull_requests
        again = send(hub, project, create_pr=True)
        assert Hub(hub.url).refs(REPO).pull_requests == before
        assert [r.committed and r.committed.pull_request for r in again.branches] == [
            r.committed and r.committed.pull_request for r in first.branches
        ]
        assert "already" in again.branches[0].note
    other = send(hub, built(make_project({"other.py": ""})), create_pr=True)
    assert Hub(hub.url).refs(REPO).pull_requests.keys() - before.keys()
    assert other.branches[0].note is None


def test_a_branch_never_exists_without_its_build(hub, make_project):
    """Whatever request of a publication fails for good, a version that is there has its build."""
    send(hub, built(make_project()))
    client = Hub(hub.url, sleep=lambda _: None)
    project = built(make_project(version=2))
    options = Options(repo_id=REPO)
    for path in ("/branch/publishing-v2", "/commit/publishing-v2", "/branch/v2", "/commit/main"):
        hub.faults.replace([Fault(effect="status", status=418, method="POST", path=path)])
        with pytest.raises(HubError):
            publish(project, client, options)
        if "v2" in branches(hub):
            assert "build/torch-cpu/__init__.py" in branch_files(hub, "v2")
    hub.faults.replace([])
    publish(project, client, options)
    assert branches(hub) == {"main", "v1", "v2"}
    assert branch_files(hub, "v2") == branch_files(hub, "v1")


def test_lost_answers_of_branch_calls(hub, make_project):
    hub.faults.replace([Fault(effect="lost_answer", path="/branch/", nth=(1, 3, 5))])
    client = Hub(hub.url, sleep=lambda _: None)
    publish(built(make_project()), client, Options(repo_id=REPO))
    hub.faults.replace([])
    assert "build/torch-cpu/__init__.py" in branch_files(hub, "v1")
    send(hub, built(make_project()))
    assert branches(hub) - {"publishing-v1"} == {"main", "v1"}


def test_two_first_publishers_of_a_version(hub, make_project):
    send(hub, built(make_project()))
    ours = built(make_project({"ours.py": ""}, version=2, folder="ours"))
    theirs = built(make_project({"theirs.py": ""}, version=2, folder="theirs"))

    class Other(Reporter):
        def stage(self, name, total=None, unit=""):
            if name == "publish v2":
                send(hub, theirs)

    with pytest.raises(CommitRaced):
        publish(ours, Hub(hub.url), Options(repo_id=REPO), reporter=Other())
    files = branch_files(hub, "v2")
    assert "build/torch-cpu/theirs.py" in files
    assert "build/torch-cpu/ours.py" not in files


def test_an_older_version_leaves_the_card(hub, make_project):
    send(hub, built(make_project()))
    send(hub, built(make_project(version=2)))
    card = Hub(hub.url).refs(REPO).branches["main"]
    done = send(hub, built(make_project({"fix.py": ""})))
    assert done.newest == "v2"
    assert [r.plan.branch for r in done.branches] == ["v1"]
    assert Hub(hub.url).refs(REPO).branches["main"] == card


@pytest.mark.parametrize("branch", ["x y", "a..b", "/x", "x/", "-x", "refs/heads/x", "x.lock", "ü"])
def test_branch_names_are_looked_at_first(hub, make_project, branch):
    with pytest.raises(InputError, match="no name of a branch"):
        send(hub, built(make_project()), branch=branch)
    assert hub.requests == []


@pytest.mark.parametrize("name", ["relu", "a/b/c", "/x", "../x", "a b/c", ""])
def test_repository_names(hub, make_project, name):
    with pytest.raises(InputError):
        publish(built(make_project()), Hub(hub.url), Options(repo_id=name))
    assert hub.requests == []


def test_a_build_does_not_go_to_main(hub, make_project):
    with pytest.raises(InputError, match="main holds the card"):
        send(hub, built(make_project()), branch="main")


def test_another_branch(hub, make_project):
    done = send(hub, built(make_project()), branch="try/one")
    assert done.branches[0].plan.branch == "try/one"
    assert "build/torch-cpu/__init__.py" in branch_files(hub, "try/one")
    assert "v1" not in Hub(hub.url).refs(REPO).branches


def test_edition_5_project_names_its_own_repository(hub, sample):
    project = built(sample("fused-relu"))
    assert publish(project, Hub(hub.url), Options()).repo_id == "demo/fused-relu"
