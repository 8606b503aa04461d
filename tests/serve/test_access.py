"""Who may do what: tokens, private repositories, read-only Hubs, organisations."""

from __future__ import annotations

import base64
import hashlib

import pytest

from kernelhub.errors import FormatError, InputError
from kernelhub.serve import create_app
from kernelhub.serve.auth import Tokens
from kernelhub.serve.testing import running_hub


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


TOKENS = """
[[token]]
name = "writer"
token = "w"
write = true
namespaces = ["demo"]

[[token]]
name = "reader"
sha256 = "{digest}"

[[token]]
name = "stranger"
token = "s"
write = true
namespaces = ["other"]
"""


@pytest.fixture
def guarded(tmp_path, make_repo):
    path = tmp_path / "tokens.toml"
    path.write_text(TOKENS.format(digest=hashlib.sha256(b"r").hexdigest()))
    with running_hub(tmp_path / "hub", tokens=path) as hub:
        assert make_repo(hub.url, "demo/open", bearer("w")).status == 200
        assert make_repo(hub.url, "demo/secret", bearer("w"), visibility="private").status == 200
        yield hub


def test_scopes(guarded, ask, commit, make_repo):
    url = guarded.url
    files = {"a": b"1"}
    assert commit(url, "demo/open", files).status == 401
    assert commit(url, "demo/open", files, headers=bearer("nonsense")).status == 401
    assert commit(url, "demo/open", files, headers=bearer("r")).status == 403
    assert commit(url, "demo/open", files, headers=bearer("s")).status == 403
    assert commit(url, "demo/open", files, headers=bearer("w")).status == 200
    assert make_repo(url, "other/x", bearer("w")).status == 403
    assert make_repo(url, "other/x", bearer("s")).status == 200
    move = {"fromRepo": "other/x", "toRepo": "demo/x", "type": "kernel"}
    assert ask(url, "POST", "/api/repos/move", move, bearer("s")).status == 403
    for path, body in (
        ("preupload/main", {"files": []}),
        ("branch/v1", {}),
        ("tag/main", {"tag": "t"}),
    ):
        where = f"/api/kernels/demo/open/{path}"
        assert ask(url, "POST", where, body, bearer("r")).status == 403
        assert ask(url, "POST", where, body, bearer("w")).status == 200
    batch = {"operation": "upload", "objects": [{"oid": "0" * 64, "size": 1}]}
    where = "/kernels/demo/open.git/info/lfs/objects/batch"
    assert ask(url, "POST", where, batch, bearer("r")).status == 403
    assert ask(url, "POST", where, batch, bearer("w")).status == 200
    gone = {"type": "kernel", "organization": "demo", "name": "open"}
    assert ask(url, "DELETE", "/api/repos/delete", gone, bearer("s")).status == 403


def test_an_invalid_token_is_said_to_be_invalid(guarded, ask):
    answer = ask(guarded.url, "GET", "/api/kernels/demo/open/refs", headers=bearer("nonsense"))
    assert answer.status == 401
    assert answer.headers["x-error-message"] == "Invalid credentials in Authorization header"
    assert answer.code is None


@pytest.mark.parametrize(
    "path",
    [
        "/api/kernels/demo/secret",
        "/api/kernels/demo/secret/refs",
        "/api/kernels/demo/secret/tree/main",
        "/kernels/demo/secret/resolve/main/.gitattributes",
    ],
)
def test_a_private_repository_is_as_if_it_were_not_there(guarded, ask, path):
    for headers in ({}, bearer("s")):
        answer = ask(guarded.url, "GET", path, headers=headers)
        absent = ask(guarded.url, "GET", path.replace("secret", "absent"), headers=headers)
        assert (answer.status, answer.code) == (absent.status, absent.code) == (404, "RepoNotFound")
    for token in ("r", "w"):
        assert ask(guarded.url, "GET", path, headers=bearer(token)).status == 200


def test_listing_shows_what_one_may_see(guarded, ask):
    def listed(headers):
        rows = ask(guarded.url, "GET", "/api/kernels?author=demo", headers=headers).json
        return [row["id"] for row in rows]

    assert listed({}) == listed(bearer("s")) == ["demo/open"]
    assert listed(bearer("r")) == ["demo/open", "demo/secret"]


def test_strangers_cannot_write_to_or_delete_what_they_cannot_see(guarded, ask, commit):
    assert commit(guarded.url, "demo/secret", {"a": b"1"}, headers=bearer("s")).status == 404
    body = {"type": "kernel", "organization": "demo", "name": "secret"}
    answer = ask(guarded.url, "DELETE", "/api/repos/delete", body, bearer("s"))
    assert (answer.status, answer.code) == (404, "RepoNotFound")


def test_private_can_be_switched(guarded, ask):
    where = "/api/kernels/demo/secret/settings"
    assert ask(guarded.url, "PUT", where, {"private": False}, bearer("r")).status == 403
    assert ask(guarded.url, "PUT", where, {"private": False}, bearer("w")).status == 200
    assert ask(guarded.url, "GET", "/api/kernels/demo/secret").json["private"] is False


def test_whoami(guarded, ask):
    assert ask(guarded.url, "GET", "/api/whoami-v2").status == 401
    answer = ask(guarded.url, "GET", "/api/whoami-v2", headers=bearer("w")).json
    assert (answer["name"], answer["orgs"]) == ("writer", [{"name": "demo"}])
    assert guarded.requests[-1].user == "writer"


def test_git_asks_for_a_password_and_takes_the_token(guarded, ask, client, tmp_path):
    path = "/kernels/demo/secret/info/refs?service=git-upload-pack"
    assert ask(guarded.url, "GET", path).headers["www-authenticate"].startswith("Basic")
    basic = base64.b64encode(b"anyone:r").decode()
    assert ask(guarded.url, "GET", path, headers={"Authorization": f"Basic {basic}"}).status == 200
    assert ask(guarded.url, "GET", path, headers={"Authorization": "Basic ?"}).status == 401
    url = guarded.url.replace("http://", "http://anyone:r@")
    client(guarded.url, "git", "clone", "-q", f"{url}/kernels/demo/secret", tmp_path / "clone")
    assert (tmp_path / "clone" / ".gitattributes").exists()


def test_a_read_only_hub_reads(tmp_path, ask, make_repo, commit):
    with running_hub(tmp_path / "hub") as hub:
        make_repo(hub.url, "demo/k")
        batch = {"operation": "upload", "objects": [{"oid": "1" * 64, "size": 1}]}
        answer = ask(hub.url, "POST", "/kernels/demo/k.git/info/lfs/objects/batch", batch)
        link = answer.json["objects"][0]["actions"]["upload"]["href"].removeprefix(hub.url)
    with running_hub(tmp_path / "hub", read_only=True) as hub:
        assert ask(hub.url, "GET", "/api/kernels/demo/k/refs").status == 200
        assert commit(hub.url, "demo/k", {"a": b"1"}).status == 403
        assert make_repo(hub.url, "demo/new").status == 403
        assert ask(hub.url, "PUT", link, b"1").status == 403
        body = {"type": "kernel", "organization": "demo", "name": "k"}
        assert ask(hub.url, "DELETE", "/api/repos/delete", body).status == 403


def test_organisations(tmp_path, ask, make_repo):
    root = tmp_path / "hub"
    root.mkdir()
    (root / "orgs.toml").write_text('[demo]\nfullname = "Demo"\n[good]\ntrusted = true\n')
    with running_hub(root, trusted=["better"]) as hub:
        make_repo(hub.url, "plain/k")

        def trusted(name):
            answer = ask(hub.url, "GET", f"/api/organizations/{name}/overview")
            return answer.json["trustedKernelPublisher"] if answer.status == 200 else None

        names = ("demo", "good", "better", "plain", "absent", "..")
        assert [trusted(name) for name in names] == [False, True, True, False, None, None]


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("", 1),
        ("[[token]]\n", 2),
        ('[[token]]\nname = "a"\ntoken = ""\n', 1),
        ('[[token]]\nname = "a"\ntoken = "x"\nsha256 = "zz"\nwrote = true\n', 3),
        ('[[token]]\nname = "a"\ntoken = "x"\nwrite = "yes"\n[[token]]\nname = 5\n', 3),
        ("not toml", 1),
    ],
)
def test_a_malformed_tokens_file_names_every_fault(tmp_path, text, faults):
    path = tmp_path / "tokens.toml"
    path.write_text(text)
    with pytest.raises(FormatError) as caught:
        Tokens.read(path)
    assert len(caught.value.problems) == faults, str(caught.value)


def test_malformed_settings_stop_the_start(tmp_path):
    (tmp_path / "orgs.toml").write_text('[demo]\ntrusted = "yes"\n["a/b"]\n')
    with pytest.raises(FormatError) as caught:
        create_app(tmp_path)
    assert len(caught.value.problems) == 2
    with pytest.raises(InputError):
        Tokens.of({"x": "admin"})
