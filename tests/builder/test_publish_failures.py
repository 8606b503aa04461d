"""A Hub that refuses, fails, lies or says nothing: clear errors, and no commit made twice."""

from __future__ import annotations

import _thread
import os
import signal
import ssl
import subprocess
import sys
import threading
import time

import pytest

from kernel_builder.hub import Hub
from kernel_builder.hub_calls import HubCalls
from kernel_builder.pack import build
from kernel_builder.project import Project
from kernel_builder.publish import Options, publish
from kernelhub.errors import (
    HubAuthError,
    HubError,
    HubRateLimited,
    HubUnavailable,
    IntegrityError,
    KernelHubError,
)
from kernelhub.reporter import Reporter
from kernelhub.serve.faults import Fault
from kernelhub.serve.limits import Limits
from kernelhub.serve.testing import hub_process, running_hub
from kernelhub.settings import scope

REPO = "demo/my-relu"


class Waits(list):
    """Stands in for `time.sleep`: remembers how long it was asked to wait."""

    def __call__(self, seconds: float) -> None:
        self.append(seconds)


@pytest.fixture
def waits():
    return Waits()


@pytest.fixture
def project(make_project):
    project = Project.open(make_project())
    build(project)
    return project


def send(hub, project, waits, **options):
    client = Hub(hub.url, options.pop("token", None), sleep=waits)
    return publish(project, client, Options(repo_id=REPO, **options))


def history(hub, branch):
    return [
        commit.title
        for commit in Hub(hub.url)._api.list_repo_commits(REPO, repo_type="kernel", revision=branch)
    ]


@pytest.mark.parametrize(
    ("status", "error", "text"),
    [
        (401, HubAuthError, "hf auth login"),
        (403, HubAuthError, "write access"),
        (429, HubRateLimited, "wait"),
        (503, HubUnavailable, "run again later"),
        (418, HubError, "418"),
    ],
)
def test_refusals_say_what_to_do(hub, project, waits, status, error, text):
    hub.faults.replace([Fault(effect="status", status=status)])
    with pytest.raises(error, match=text) as caught:
        send(hub, project, waits)
    assert caught.value.status == status
    assert len(waits) == (4 if status in (429, 503) else 0)


def test_the_wait_that_the_hub_asks_for(hub, project, waits):
    later = Fault(effect="status", status=429, headers={"Retry-After": "7"}, nth=(1, 2))
    hub.faults.replace([later])
    send(hub, project, waits)
    assert waits == [7.0, 7.0]
    assert history(hub, "v1")[0].startswith("Publish v1")


@pytest.mark.parametrize("effect", ["garbage", "reset"])
def test_no_hub_at_all(hub, project, waits, effect):
    hub.faults.replace([Fault(effect=effect, body=b"<html>log in</html>")])
    with pytest.raises(HubUnavailable, match=r"protocol|network"):
        send(hub, project, waits)


def test_json_of_another_shape(hub, project, waits):
    hub.faults.replace([Fault(effect="status", status=200, body=b'{"hello": [1]}')])
    with pytest.raises(HubUnavailable, match="protocol"):
        send(hub, project, waits)


def test_a_hub_that_says_nothing(hub, project, waits):
    hub.faults.replace([Fault(effect="stall", seconds=30.0, path="/refs")])
    client = Hub(hub.url, silence=0.2, sleep=waits)
    with pytest.raises(HubUnavailable, match="timed out"):
        publish(project, client, Options(repo_id=REPO))
    assert len(waits) == 4


@pytest.mark.parametrize("path", ["/preupload/", "/commit/publishing-v1"])
def test_publishing_ends_at_its_deadline(hub, project, path):
    """What is left then does not go on by itself; the next try goes on from there."""
    hub.faults.replace([Fault(effect="stall", path=path, seconds=4.0)])
    with scope(publish_timeout=2.0), pytest.raises(HubUnavailable) as caught:
        publish(project, Hub(hub.url), Options(repo_id=REPO))
    assert "2 s allowed" in str(caught.value)
    assert "KERNELHUB_PUBLISH_TIMEOUT" in str(caught.value)
    hub.faults.replace([])
    let_calls_end()
    if path == "/preupload/":  # the commit itself is the Hub's to make once it has been asked
        assert not any(t.startswith("Publish") for t in history(hub, "publishing-v1"))
    publish(project, Hub(hub.url), Options(repo_id=REPO))
    assert len(history(hub, "v1")) == 2  # of the Hub, when it made the repository, and ours


def test_a_wait_beyond_the_deadline_is_not_begun(hub, project):
    later = Fault(effect="status", status=503, headers={"Retry-After": "90"})
    hub.faults.replace([later])
    with pytest.raises(HubUnavailable, match=r"60 s allowed.*answered 503"):
        publish(project, Hub(hub.url, timeout=60.0), Options(repo_id=REPO))


def let_calls_end():
    for thread in threading.enumerate():
        if thread.name == "kernelhub-open":
            thread.join(20)


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("path", ["/refs", "/commit/publishing-v1"])
def test_interrupted_while_the_hub_keeps_it_waiting(hub, project, path):
    hub.faults.replace([Fault(effect="stall", seconds=60.0, path=path)])
    code = "from kernel_builder.cli import main; main()"
    command = ["publish", str(project.root), "--endpoint", hub.url, "--repo-id", REPO]
    process = subprocess.Popen(
        [sys.executable, "-c", code, *command],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 30
    while not hub.faults.injected and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=20)
    assert process.returncode == 130, said
    assert said.splitlines()[-1] == "interrupted"
    assert "Traceback" not in said


def test_a_certificate_that_is_not_accepted_is_not_tried_again(waits):
    """As the network library raises it: an error of its own because of one of `ssl`."""
    from huggingface_hub.errors import HTTPError

    def call():
        try:
            raise ssl.SSLCertVerificationError("self-signed certificate")
        except ssl.SSLError as error:
            raise HTTPError("certificate verify failed") from error

    calls = HubCalls("https://hub", silence=1.0, timeout=60.0, sleep=waits)
    with pytest.raises(HubUnavailable) as caught:
        calls.again("list demo/k", call)
    assert "SSL_CERT_FILE" in caught.value.hint
    assert waits == []


def test_nobody_listens(project, waits):
    with pytest.raises(HubUnavailable, match="check the network"):
        publish(project, Hub("http://127.0.0.1:9", sleep=waits), Options(repo_id=REPO))
    assert len(waits) == 4


@pytest.mark.parametrize("effect", ["lost_answer", "status"])
def test_a_lost_answer_does_not_commit_twice(hub, project, waits, effect):
    hub.faults.replace(
        [Fault(effect=effect, status=500, method="POST", path="/commit/publishing-v1", nth=(1,))]
    )
    done = send(hub, project, waits)
    assert len(history(hub, "v1")) == 2  # of the Hub, when it made the repository, and ours
    oid = done.branches[0].committed.oid
    assert oid == Hub(hub.url).refs(REPO).branches["v1"]
    assert waits == ([] if effect == "lost_answer" else [2.0])


def test_a_lost_answer_does_not_open_two_pull_requests(hub, project, waits, make_project):
    send(hub, project, waits)
    changed = Project.open(make_project({"new.py": ""}))
    build(changed)
    hub.faults.replace([Fault(effect="lost_answer", method="POST", path="/commit/v1", nth=(1,))])
    done = send(hub, changed, waits, create_pr=True)
    assert done.branches[0].committed.pull_request.endswith("/discussions/1")
    assert len(Hub(hub.url).refs(REPO).pull_requests) == 1


def test_a_hub_that_loses_every_commit_is_given_up(hub, project, waits):
    hub.faults.replace(
        [Fault(effect="status", status=502, method="POST", path="/commit/publishing-v1")]
    )
    with pytest.raises(HubUnavailable, match="502"):
        send(hub, project, waits)
    assert waits == [2.0, 8.0]
    hub.faults.replace([])
    done = send(hub, project, waits)  # what was left half way is completed
    assert [r.committed is not None for r in done.branches] == [True, True]
    assert len(history(hub, "v1")) == 2


def test_published_sources_that_arrive_damaged(hub, project, waits, make_project):
    send(hub, project, waits)
    changed = Project.open(make_project({"new.py": ""}))
    build(changed)
    hub.faults.replace([Fault(effect="corrupt", method="GET", path="/resolve/.*__init__")])
    with pytest.raises(IntegrityError, match="listing"):
        send(hub, changed, waits)


def test_tokens(tmp_path, project, waits):
    tokens = {"reader": "read", "writer": "write"}
    with running_hub(tmp_path / "guarded", tokens=tokens) as hub:
        for token in (None, "reader", "wrong"):
            with pytest.raises(KernelHubError) as caught:
                send(hub, project, waits, token=token)
            assert "token" in str(caught.value)
        send(hub, project, waits, token="writer", private=True)
        info = Hub(hub.url, "writer")._api.kernel_info(REPO)
        assert info.private


# huggingface_hub hands files to the network library in a form that this one calls deprecated.
RAW_BODY = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")
SHARED = ("cpu", "cuda", "rocm", "xpu")


def large_project(make_project, size=3_000_000):
    project = Project.open(make_project({"data.bin": os.urandom(size)}, backends=SHARED))
    build(project)
    return project


def uploads(hub):
    return [r for r in hub.requests if r.method == "PUT"]


@RAW_BODY
def test_a_large_file_of_several_variants_is_sent_once(tmp_path, make_project, waits):
    with running_hub(tmp_path / "small", limits=Limits(lfs_from=100_000)) as hub:
        send(hub, large_project(make_project), waits)
        assert len(uploads(hub)) == 1
        head = Hub(hub.url).refs(REPO).branches["v1"]
        stored = {f.path: f.sha256 for f in Hub(hub.url).tree(REPO, head) if f.sha256}
        assert len(stored) == len(SHARED)
        assert len(set(stored.values())) == 1


@RAW_BODY
def test_equal_small_lfs_files_do_not_share_a_handle(tmp_path, make_project, waits):
    with running_hub(tmp_path / "small", limits=Limits(lfs_from=1)) as hub:
        send(hub, large_project(make_project, 100_000), waits)
        assert "v1" in Hub(hub.url).refs(REPO).branches


@RAW_BODY
def test_an_upload_that_fails_is_sent_again(tmp_path, make_project, waits):
    with running_hub(tmp_path / "small", limits=Limits(lfs_from=100_000)) as hub:
        project = large_project(make_project)
        hub.faults.replace([Fault(effect="status", status=418, method="PUT", path="/")])
        with pytest.raises(HubError) as caught:
            send(hub, project, waits)
        assert REPO in str(caught.value)
        hub.faults.replace([Fault(effect="reset", method="PUT", path="/", nth=(1,))])
        send(hub, project, waits)
        assert "v1" in Hub(hub.url).refs(REPO).branches


class Slow(Reporter):
    """A network that takes a fifth of a second for each piece: never silent, and too slow."""

    sent = 0

    def advance(self, count: int) -> None:
        self.sent += count
        time.sleep(0.2)


@RAW_BODY
def test_a_file_that_is_sent_slowly_ends_at_the_deadline(tmp_path, make_project, waits):
    with running_hub(tmp_path / "small", limits=Limits(lfs_from=100_000)) as hub:
        project, slow = large_project(make_project), Slow()
        client = Hub(hub.url, timeout=3.0, sleep=waits)
        with pytest.raises(HubUnavailable, match="3 s allowed"):
            publish(project, client, Options(repo_id=REPO), reporter=slow)
        let_calls_end()
        assert 0 < slow.sent < 3_000_000
        send(hub, project, waits)
        assert "v1" in Hub(hub.url).refs(REPO).branches


class Interrupting(Reporter):
    """Somebody who presses Ctrl-C once the first piece is sent."""

    sent = 0

    def advance(self, count: int) -> None:
        if not self.sent:
            _thread.interrupt_main()
            time.sleep(0.5)  # until the main thread has seen it
        self.sent += count


@RAW_BODY
def test_what_was_interrupted_is_not_committed_later(tmp_path, make_project, waits):
    with running_hub(tmp_path / "small", limits=Limits(lfs_from=100_000)) as hub:
        project, user = large_project(make_project), Interrupting()
        with pytest.raises(KeyboardInterrupt):
            publish(project, Hub(hub.url, sleep=waits), Options(repo_id=REPO), reporter=user)
        let_calls_end()
        assert 0 < user.sent < 3_000_000
        assert not any(title.startswith("Publish") for title in history(hub, "publishing-v1"))


CHILD = """
import sys
from pathlib import Path
from kernel_builder.hub import Hub, quiet_library
from kernel_builder.project import Project
from kernel_builder.publish import Options, publish
import huggingface_hub, griffe
project = Project.open(sys.argv[2])
hub = Hub(sys.argv[1])

def status(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))

Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
before = status("VmRSS")
publish(project, hub, Options(repo_id="demo/my-relu"))
print(status("VmHWM") - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_large_file_is_not_held_in_memory(tmp_path, make_project):
    root = make_project({"data.bin": b""}, backends=("cpu",))
    large = root / "torch-ext" / "my_relu" / "data.bin"
    with large.open("wb") as stream:
        for _ in range(200):
            stream.write(os.urandom(1_000_000))
    build(Project.open(root))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    with hub_process(tmp_path / "hub") as (url, _):
        done = subprocess.run(
            [sys.executable, "-c", CHILD, url, str(root)],
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 64 * 1024  # kB
