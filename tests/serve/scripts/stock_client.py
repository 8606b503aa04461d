"""Everything that a stock huggingface_hub does with a Hub, in one process; asserts as it goes."""

import io
import json
import sys
from pathlib import Path

from huggingface_hub import (
    CommitOperationAdd,
    CommitOperationCopy,
    CommitOperationDelete,
    HfApi,
    constants,
    hf_hub_download,
    snapshot_download,
)
from huggingface_hub.errors import (
    EntryNotFoundError,
    HfHubHTTPError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

constants.REPO_TYPES.append("kernel")  # what 2.3 knows, for the versions before it
kind, work = sys.argv[1], Path(sys.argv[2])
repo, of = f"demo/a-{kind}", {"repo_type": kind}
api = HfApi()


def refused(error, call, *args, **more):
    try:
        call(*args, **more)
    except error as caught:
        return caught
    raise AssertionError(f"{call.__name__}{args} was not refused")


# Repositories
refused(RepositoryNotFoundError, api.repo_info, repo, **of)
assert api.create_repo(repo, **of).repo_id == repo
refused(HfHubHTTPError, api.create_repo, repo, **of)
assert api.create_repo(repo, exist_ok=True, **of).repo_id == repo
assert api.repo_exists(repo, **of)
info = api.repo_info(repo, **of)
assert info.id == repo
assert len(info.sha) == 40
assert info.private is False

# Branches, tags, refs
api.create_branch(repo, branch="v1", **of)
api.create_branch(repo, branch="feat/x+y", revision=info.sha, **of)
refused(HfHubHTTPError, api.create_branch, repo, branch="v1", **of)
api.create_branch(repo, branch="v1", exist_ok=True, **of)
api.create_tag(repo, tag="t1", revision="v1", **of)
api.create_tag(repo, tag="t2", tag_message="with words", revision="v1", **of)
refused(HfHubHTTPError, api.create_tag, repo, tag="t1", **of)
refs = api.list_repo_refs(repo, include_pull_requests=True, **of)
assert [b.name for b in refs.branches] == ["feat/x+y", "main", "v1"]
assert {(t.name, t.target_commit) for t in refs.tags} == {("t1", info.sha), ("t2", info.sha)}
assert refs.pull_requests == []
api.delete_tag(repo, tag="t2", **of)
api.delete_branch(repo, branch="feat/x+y", **of)
refused(RevisionNotFoundError, api.delete_branch, repo, branch="nowhere", **of)
refused(RevisionNotFoundError, api.repo_info, repo, revision="nowhere", **of)
assert api.revision_exists(repo, "t1", **of)
assert not api.revision_exists(repo, "t2", **of)

# A commit of a path, of bytes and of a file object; an LFS file among them (see the test's limits)
(work / "from-path.txt").write_text("path")
large = bytes(range(256)) * 12
trap = "d i r/ü#?%25 &+.txt"
done = api.create_commit(
    repo,
    operations=[
        CommitOperationAdd("from-path.txt", str(work / "from-path.txt")),
        CommitOperationAdd("bytes.txt", b"bytes"),
        CommitOperationAdd("large.bin", io.BytesIO(large)),
        CommitOperationAdd(trap, b"trap"),
        CommitOperationAdd("empty", b""),
        CommitOperationAdd("refs/heads/v1/deep", b"deep"),
    ],
    commit_message="one",
    commit_description="more words",
    revision="v1",
    **of,
)
head = api.repo_info(repo, revision="v1", **of).sha
assert done.oid == head
assert done.commit_url.endswith(f"/commit/{head}")
history = api.list_repo_commits(repo, revision="v1", **of)
assert [c.title for c in history] == ["one", "initial commit"]
assert history[0].message == "more words"
stale = refused(
    HfHubHTTPError,
    api.create_commit,
    repo,
    operations=[CommitOperationAdd("x", b"x")],
    commit_message="stale",
    revision="v1",
    parent_commit=info.sha,
    **of,
)
assert stale.response.status_code == 412

# Listings: in pages of three
tree = list(api.list_repo_tree(repo, recursive=True, revision="v1", **of))
files = {entry.path: entry for entry in tree if hasattr(entry, "blob_id")}
assert set(files) == {
    *(".gitattributes", "from-path.txt", "bytes.txt", "large.bin", "empty", trap),
    "refs/heads/v1/deep",
}
assert {e.path for e in tree} - set(files) == {"d i r", "refs", "refs/heads", "refs/heads/v1"}
assert files["large.bin"].size == len(large)
assert files["large.bin"].lfs.size == len(large)
assert files["bytes.txt"].lfs is None
assert files["bytes.txt"].size == 5
below = api.list_repo_tree(repo, "refs/heads", recursive=True, revision="refs/heads/v1", **of)
assert [e.path for e in below] == ["refs/heads/v1", "refs/heads/v1/deep"]
refused(EntryNotFoundError, lambda: list(api.list_repo_tree(repo, "no/where", **of)))
expanded = list(api.list_repo_tree(repo, expand=True, revision="v1", **of))
titles = {e.path: e.last_commit.title for e in expanded}
assert titles["bytes.txt"] == "one"
assert len(expanded) == 7
# the attributes gained a line for the LFS file
assert titles[".gitattributes"] == "one"
infos = api.get_paths_info(repo, ["bytes.txt", trap, "d i r", "absent"], revision="v1", **of)
assert [i.path for i in infos] == ["bytes.txt", trap, "d i r"]
assert api.file_exists(repo, trap, revision="v1", **of)

# Downloads
for path, content in ((trap, b"trap"), ("large.bin", large), ("empty", b"")):
    local = hf_hub_download(repo, path, revision="v1", **of)
    assert Path(local).read_bytes() == content, path
absent = refused(EntryNotFoundError, hf_hub_download, repo, "absent", revision="v1", **of)
assert absent.response.headers["X-Repo-Commit"] == head
refused(RevisionNotFoundError, hf_hub_download, repo, "empty", revision="nope", **of)
snapshot = Path(snapshot_download(repo, revision="refs/heads/v1", **of))
assert snapshot.name == head
assert (snapshot / trap).read_bytes() == b"trap"

# Removing, copying
api.create_commit(
    repo,
    operations=[
        CommitOperationDelete("d i r/"),
        CommitOperationDelete("bytes.txt"),
        CommitOperationCopy("large.bin", "copies/large.bin", src_revision="v1"),
    ],
    commit_message="two",
    revision="v1",
    **of,
)
names = set(api.list_repo_files(repo, revision="v1", **of))
assert names == {
    *(".gitattributes", "from-path.txt", "large.bin", "copies/large.bin", "empty"),
    "refs/heads/v1/deep",
}
missing = refused(
    EntryNotFoundError,
    api.create_commit,
    repo,
    operations=[CommitOperationDelete("bytes.txt")],
    commit_message="again",
    revision="v1",
    **of,
)
assert "bytes.txt" in str(missing)
assert "doesn't exist" in str(missing)

# A folder, twice: the second time nothing changes, so there is no commit
folder = work / "folder"
(folder / "build" / "torch-cpu").mkdir(parents=True)
(folder / "build" / "torch-cpu" / "__init__.py").write_text("x = 1\n")
(folder / "README.md").write_text("---\nlicense: mit\n---\nhello\n")
upload = dict(repo_id=repo, folder_path=str(folder), revision="main", **of)
first = api.upload_folder(commit_message="up", **upload)
again = api.upload_folder(commit_message="up", delete_patterns="build/*", **upload)
assert api.repo_info(repo, **of).sha == first.oid == again.oid
(folder / "build" / "torch-cpu" / "__init__.py").rename(folder / "build" / "torch-cpu" / "n.py")
api.upload_folder(commit_message="up", delete_patterns="build/*", **upload)
names = set(api.list_repo_files(repo, **of))
assert names == {".gitattributes", "README.md", "build/torch-cpu/n.py"}

# Pull requests
proposed = api.create_commit(
    repo,
    operations=[CommitOperationAdd("pr.txt", b"pr")],
    commit_message="proposal",
    create_pr=True,
    revision="v1",
    **of,
)
assert proposed.pr_revision == "refs/pr/1"
assert proposed.pr_num == 1
local = hf_hub_download(repo, "pr.txt", revision="refs/pr/1", **of)
assert Path(local).read_bytes() == b"pr"
assert not api.file_exists(repo, "pr.txt", revision="v1", **of)
refs = api.list_repo_refs(repo, include_pull_requests=True, **of)
assert [(r.ref, r.target_commit) for r in refs.pull_requests] == [("refs/pr/1", proposed.oid)]

# Moving, deleting
api.move_repo(repo, f"demo/b-{kind}", **of)
assert not api.repo_exists(repo, **of)
moved = Path(snapshot_download(f"demo/b-{kind}", revision="v1", **of))
assert (moved / "copies" / "large.bin").read_bytes() == large
api.delete_repo(f"demo/b-{kind}", **of)
refused(RepositoryNotFoundError, api.delete_repo, f"demo/b-{kind}", **of)
api.delete_repo(f"demo/b-{kind}", missing_ok=True, **of)
print(json.dumps({"done": kind}))
