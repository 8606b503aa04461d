"""Requests that no stock client sends: path escapes, malformed bodies, sizes, odd names."""

from __future__ import annotations

import base64
import json
import urllib.request
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelhub.serve.address import check_path, check_ref_name, is_name
from kernelhub.serve.attributes import with_lfs_lines
from kernelhub.serve.lfs import Pointer, parse_pointer
from kernelhub.serve.limits import Limits
from kernelhub.serve.refusal import Refusal
from kernelhub.serve.resolve import read_range
from kernelhub.serve.testing import running_hub

REPO = "demo/k"
API = f"/api/kernels/{REPO}"


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """For tests that change nothing, or say so if they do."""
    with running_hub(tmp_path_factory.mktemp("shared") / "hub") as hub:
        body = {"type": "kernel", "organization": "demo", "name": "k"}
        rows = (
            {"key": "header", "value": {"summary": "s"}},
            {"key": "file", "value": {"path": "a/b.txt", "content": "0123456789"}},
        )
        lines = "\n".join(map(json.dumps, rows)).encode()
        for path, data in (
            ("/api/repos/create", json.dumps(body).encode()),
            (f"{API}/commit/main", lines),
        ):
            request = urllib.request.Request(hub.url + path, data, method="POST")
            urllib.request.urlopen(request).close()
        yield hub


@pytest.fixture
def filled(hub, make_repo, commit):
    make_repo(hub.url, REPO)
    assert commit(hub.url, REPO, {"a/b.txt": b"0123456789"}).status == 200
    return hub


@pytest.mark.parametrize(
    "path",
    [
        *("../x", "a/../../x", "/etc/passwd", "a//b", "./a", "a/.", "", ".git/config", "a/.GIT/x"),
        *(
            "git~1/x",
            ".git./x",
            ".git /x",
            ".git::$INDEX_ALLOCATION/x",
            "a\\..\\b",
            "a\x00b",
            "a\n",
        ),
        *("x" * 300, "/".join(["d" * 200] * 30), "\ud800"),
    ],
)
def test_paths_that_leave_the_repository_are_refused(shared, ask, commit, path):
    for files, extra in (
        ({path: b"x"}, ()),
        ({}, ({"key": "deletedFile", "value": {"path": path}},)),
    ):
        answer = commit(shared.url, REPO, files, extra=extra)
        assert answer.status == 400, answer.body
    preupload = {"files": [{"path": path, "size": 1, "sample": ""}]}
    assert ask(shared.url, "POST", f"{API}/preupload/main", preupload).status == 400


@pytest.mark.parametrize(
    "path",
    [
        f"/kernels/{REPO}/resolve/main/../../../../../../etc/passwd",
        f"/kernels/{REPO}/resolve/main/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
        f"/kernels/{REPO}/resolve/main/..%2f..%2fconfig",
        f"/kernels/{REPO}/resolve/main//etc/passwd",
        f"/kernels/{REPO}/resolve/main/a//b.txt",
        f"/kernels/{REPO}/resolve/main/a",
        f"/kernels/{REPO}/resolve/main/a/b.txt/c",
        f"/kernels/{REPO}/resolve/main/%ff%fe",
        f"/kernels/{REPO}/resolve/main/%00",
        f"/kernels/{REPO}/resolve/..%2f..%2fHEAD/a/b.txt",
        f"/kernels/{REPO}/resolve/refs%2F..%2F..%2Fhub.json/a/b.txt",
        f"/kernels/{REPO}/resolve/refs%2Fheads/a/b.txt",
        f"/kernels/{REPO}/resolve/{'0' * 40}/a/b.txt",
        "/kernels/../.hub/resolve/main/links.key",
        "/kernels/%2e%2e/.hub/resolve/main/links.key",
        "/kernels/demo/k.git/resolve/main/a/b.txt",
        f"{API}/tree/main/..",
        f"{API}/tree/main/%2e%2e%2f%2e%2e",
        f"{API}/tree/main/a/b.txt",
        "/api/kernels/demo%2Fk/x/refs",
        "/api/kernels/demo/absent",
        "/api/kernels/demo/ab..sent/refs",
        "/favicon.ico",
        "/api/no/such",
    ],
)
def test_reads_outside_are_not_found_with_a_code_that_clients_know(shared, ask, path):
    answer = ask(shared.url, "GET", path)
    assert answer.status == 404, answer.body
    assert answer.code in ("EntryNotFound", "RepoNotFound", "RevisionNotFound")
    assert b"root:" not in answer.body


@pytest.mark.parametrize("name", ["..", ".hub", "a/b", "a b", "a--b", "x.git", "é", "a" * 97, ""])
def test_names_that_are_no_folder_names_are_refused(shared, ask, name):
    for namespace, repo in ((name, "k"), ("demo", name)):
        body = {"type": "kernel", "organization": namespace or "-", "name": repo}
        assert ask(shared.url, "POST", "/api/repos/create", body).status == 400
    assert [path.name for path in (shared.root / "kernels").glob("**/*.git")] == ["k.git"]


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"\n\n", b"{", b"[]", b"null", b"{}", b'{"key": "header"}', b"\xff\xfe"),
        b'{"key": "header", "value": {"summary": 1}}',
        b'{"key": "header", "value": {"summary": "s", "parentCommit": "abc"}}',
        b'{"key": "file", "value": {"path": "a", "content": "x"}}',
        b"[" * 100_000,
    ],
)
def test_a_malformed_commit_changes_nothing(shared, ask, body):
    before = ask(shared.url, "GET", f"{API}/refs").body
    assert ask(shared.url, "POST", f"{API}/commit/main", body).status == 400
    assert ask(shared.url, "GET", f"{API}/refs").body == before


@pytest.mark.parametrize(
    "row",
    [
        {"key": "explode", "value": {"path": "a"}},
        {"key": "file", "value": {"path": "a", "content": "!!", "encoding": "base64"}},
        {"key": "file", "value": {"path": "a", "content": "x", "encoding": "rot13"}},
        {"key": "file", "value": {"path": 5, "content": "x"}},
        {"key": "lfsFile", "value": {"path": "a", "oid": "../../x", "size": 1}},
        {"key": "lfsFile", "value": {"path": "a", "oid": "0" * 64, "size": 1}},
        {"key": "lfsFile", "value": {"path": "a", "oid": "0" * 64, "size": -1}},
        {"key": "file", "value": {"path": "a", "content": "a is a folder"}},
        {"key": "file", "value": {"path": "a/b.txt/c", "content": "b.txt is a file"}},
    ],
)
def test_an_unusable_operation_is_refused_and_the_branch_stays(shared, ask, commit, row):
    before = ask(shared.url, "GET", f"{API}/refs").body
    assert commit(shared.url, REPO, {"new": b"x"}, extra=(row,)).status == 400
    assert ask(shared.url, "GET", f"{API}/refs").body == before


def test_a_folder_can_be_removed_and_become_a_file_in_one_commit(filled, ask, commit):
    removal = {"key": "deletedFolder", "value": {"path": "a/"}}
    assert commit(filled.url, REPO, {"a": b"now a file"}, extra=(removal,)).status == 200
    assert ask(filled.url, "GET", f"/kernels/{REPO}/resolve/main/a").body == b"now a file"


def test_sizes_are_limited(tmp_path, ask, make_repo, commit):
    limits = Limits(
        regular_bytes=100, commit_bytes=200_000, operations=5, json_bytes=5000, lfs_bytes=1000
    )
    with running_hub(tmp_path / "hub", limits=limits) as hub:
        make_repo(hub.url, REPO)
        assert commit(hub.url, REPO, {"a": b"x" * 100}).status == 200
        assert commit(hub.url, REPO, {"a": b"x" * 101}).status == 413
        assert commit(hub.url, REPO, {"a": b"x" * 150_000}).status == 413  # one overlong line
        assert commit(hub.url, REPO, {"a": b"x" * 300_000}).status == 413
        assert commit(hub.url, REPO, {str(n): b"x" for n in range(6)}).status == 413
        body = {"content": "x" * 6000}
        assert ask(hub.url, "POST", "/api/validate-yaml", body).status == 413
        objects = [{"oid": "0" * 64, "size": 1001}]
        batch = {"operation": "upload", "objects": objects}
        answer = ask(hub.url, "POST", f"/kernels/{REPO}.git/info/lfs/objects/batch", batch)
        assert answer.json["objects"][0]["error"]["code"] == 413
        assert not list((hub.root / ".hub" / "incoming").iterdir())


def upload_link(ask, url, oid, size):
    batch = {"operation": "upload", "objects": [{"oid": oid, "size": size}]}
    answer = ask(url, "POST", f"/kernels/{REPO}.git/info/lfs/objects/batch", batch)
    return answer.json["objects"][0]["actions"]["upload"]["href"].removeprefix(url)


def test_an_lfs_object_is_kept_only_if_it_is_the_one_announced(filled, ask):
    import hashlib

    data = b"large" * 10
    oid = hashlib.sha256(data).hexdigest()
    link = upload_link(ask, filled.url, oid, len(data))
    for wrong in (b"large" * 9, b"large" * 11, b"l4rge" * 10, b""):
        assert ask(filled.url, "PUT", link, wrong).status == 400
    folder = filled.root / "kernels" / "demo" / "k.git" / "lfs"
    assert not folder.exists() or not [p for p in folder.rglob("*") if p.is_file()]
    assert ask(filled.url, "PUT", link, data).status == 200
    verify = f"/kernels/{REPO}.git/info/lfs/verify"
    assert ask(filled.url, "POST", verify, {"oid": oid, "size": len(data)}).status == 200
    assert ask(filled.url, "POST", verify, {"oid": oid, "size": 1}).status == 404
    download = {"operation": "download", "objects": [{"oid": oid, "size": len(data)}]}
    batch = f"/kernels/{REPO}.git/info/lfs/objects/batch"
    (found,) = ask(filled.url, "POST", batch, download).json["objects"]
    href = found["actions"]["download"]["href"].removeprefix(filled.url)
    assert ask(filled.url, "GET", href).body == data


def test_upload_links_cannot_be_forged_or_reused_for_something_else(filled, ask):
    link = upload_link(ask, filled.url, "1" * 64, 5)
    other = link.replace("1" * 64, "2" * 64)
    larger = link.replace("size=5", "size=500")
    elsewhere = link.replace("/demo/k/", "/demo/other/")
    as_part = link.replace("/upload/", "/part/")
    odd = link.partition("signature=")[0] + "signature=%C3%BC"
    for forged in (other, larger, elsewhere, as_part, odd, link.partition("?")[0]):
        assert ask(filled.url, "PUT", forged, b"12345").status == 403, forged


@pytest.mark.parametrize(
    ("header", "status", "body"),
    [
        ("bytes=3-", 206, b"3456789"),
        ("bytes=0-0", 206, b"0"),
        ("bytes=2-4", 206, b"234"),
        ("bytes=5-999", 206, b"56789"),
        ("bytes=-3", 206, b"789"),
        ("bytes=-99", 206, b"0123456789"),
        ("bytes=10-", 416, None),
        ("bytes=4-2", 200, b"0123456789"),
        ("bytes=0-1,3-4", 200, b"0123456789"),
        ("bytes=-", 200, b"0123456789"),
        ("lines=1-2", 200, b"0123456789"),
    ],
)
def test_ranges(shared, ask, header, status, body):
    path = f"/kernels/{REPO}/resolve/main/a/b.txt"
    answer = ask(shared.url, "GET", path, headers={"Range": header})
    assert answer.status == status
    if body is None:
        assert answer.headers["content-range"] == "bytes */10"
    else:
        assert answer.body == body
        assert int(answer.headers["content-length"]) == len(body)


@given(size=st.integers(0, 50), header=st.text("bytes=-0123456789,", max_size=12))
def test_any_range_header_gives_a_part_of_the_file(size, header):
    try:
        span = read_range(f"bytes={header}", size)
    except Refusal:
        return
    assert span is None or 0 <= span[0] < span[1] <= size


def test_head_tells_what_get_sends(shared, ask):
    path = f"/kernels/{REPO}/resolve/refs%2Fheads%2Fmain/a/b.txt"
    head, get = ask(shared.url, "HEAD", path), ask(shared.url, "GET", path)
    assert head.body == b""
    for name in ("etag", "x-repo-commit", "content-length"):
        assert head.headers[name] == get.headers[name]
    assert head.headers["content-disposition"].startswith("attachment")


def test_revisions_are_one_encoded_segment(filled, ask, commit):
    branch = "feat/x+%y#é"
    quoted = quote(branch, safe="")
    assert ask(filled.url, "POST", f"{API}/branch/{quoted}", {}).status == 200
    assert commit(filled.url, REPO, {"only/here.txt": b"1"}, revision=quoted).status == 200
    tree = ask(filled.url, "GET", f"{API}/tree/{quoted}/only%2F?recursive=true")
    assert [entry["path"] for entry in tree.json] == ["only/here.txt"]
    for revision in (quoted, quote(f"refs/heads/{branch}", safe="")):
        path = f"/kernels/{REPO}/resolve/{revision}/only/here.txt"
        assert ask(filled.url, "GET", path).body == b"1"
    clash = quote(f"{branch}/below", safe="")
    assert ask(filled.url, "POST", f"{API}/branch/{clash}", {}).status == 409


@pytest.mark.parametrize(
    "name", ["..", "a..b", "a b", "x.lock", "-x", "HEAD", "refs/heads/x", "a/", "@{", "a" * 201]
)
def test_branch_names_that_git_refuses(shared, ask, name):
    quoted = quote(name, safe="")
    assert ask(shared.url, "POST", f"{API}/branch/{quoted}", {}).status == 400
    assert ask(shared.url, "POST", f"{API}/tag/main", {"tag": name}).status == 400


def test_main_cannot_be_deleted_and_commits_go_to_branches_only(filled, ask, commit):
    assert ask(filled.url, "DELETE", f"{API}/branch/main").status == 403
    ask(filled.url, "POST", f"{API}/tag/main", {"tag": "t"})
    assert commit(filled.url, REPO, {"x": b"x"}, revision="t").status == 400
    gone = commit(filled.url, REPO, {"x": b"x"}, revision="nowhere")
    assert (gone.status, gone.code) == (404, "RevisionNotFound")


def test_methods_and_redirect_targets(filled, ask):
    assert ask(filled.url, "POST", f"{API}/refs", {}).status == 405
    created = {"type": "kernel", "organization": "demo", "name": "named"}
    host = {"Host": "hub.example:9999"}
    answer = ask(filled.url, "POST", "/api/repos/create", created, host)
    assert answer.json["url"] == "http://hub.example:9999/kernels/demo/named"


def test_ignored_files_and_unchanged_ones_are_told_before_the_upload(shared, ask):
    entry = ask(shared.url, "GET", f"{API}/tree/main/a").json[0]
    sample = base64.b64encode(b"0").decode()
    files = [
        {"path": path, "size": 10, "sample": sample}
        for path in ("a/b.txt", "cache/deep/x.pyc", "kept.py")
    ]
    body = {"files": files, "gitIgnore": "cache/\n*.tmp\n"}
    answer = ask(shared.url, "POST", f"{API}/preupload/main", body).json["files"]
    assert [file["shouldIgnore"] for file in answer] == [False, True, False]
    assert answer[0]["oid"] == entry["oid"]
    assert {file["uploadMode"] for file in answer} == {"regular"}


def test_large_files_get_a_line_in_gitattributes_until_they_are_gone():
    old = b"* -text\n"
    new = with_lfs_lines(old, large=["a b/[x]*.bin"], small=[])
    line = rb"/a[[:space:]]b/\[x\]\*.bin filter=lfs diff=lfs merge=lfs -text"
    assert new == old + line + b"\n"
    assert with_lfs_lines(new, large=["a b/[x]*.bin"], small=["other"]) == new
    assert with_lfs_lines(new, large=[], small=["a b/[x]*.bin"]) == old


@given(st.text(max_size=30))
def test_checked_names_are_safe_folder_names(text):
    if is_name(text):
        assert text.isascii()
        assert not set(text) & set('/\\:*?"<>| ')
        assert not text.startswith(".")


@settings(suppress_health_check=[HealthCheck.filter_too_much])
@given(st.lists(st.text(max_size=8), max_size=5).map("/".join))
def test_checked_paths_stay_inside(path):
    try:
        check_path(path)
    except Refusal:
        return
    assert all(part not in ("", ".", "..") for part in path.split("/"))
    assert path.encode().decode() == path


@given(st.text(max_size=20))
def test_checked_ref_names_are_those_of_git(name):
    try:
        check_ref_name(name)
    except Refusal:
        return
    assert not set(name) & set(" ~^:?*[\\\x7f")
    assert ".." not in name


@given(oid=st.text("0123456789abcdef", min_size=64, max_size=64), size=st.integers(0, 2**62))
def test_pointers_round_trip(oid, size):
    pointer = Pointer(oid=oid, size=size)
    assert parse_pointer(pointer.render()) == pointer
    assert parse_pointer(pointer.render() + b"x") is None


def test_answers_to_hostile_json_are_json(shared, ask):
    for body in (b'{"paths": "\\ud800"}', b'{"paths": ["\\ud800"]}', b"[" * 50_000):
        headers = {"Content-Type": "application/json"}
        answer = ask(shared.url, "POST", f"{API}/paths-info/main", body, headers)
        assert answer.status in (200, 400)
        json.loads(answer.body)


def test_an_object_named_twice_gets_one_action(filled, ask):
    batch = {"operation": "upload", "objects": [{"oid": "1" * 64, "size": 1}] * 4}
    answer = ask(filled.url, "POST", f"/kernels/{REPO}.git/info/lfs/objects/batch", batch)
    assert len(answer.json["objects"]) == 1
