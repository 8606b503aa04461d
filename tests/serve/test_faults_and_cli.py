"""The faulty mode, and the command."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from kernelhub.cli import group, run
from kernelhub.errors import InputError
from kernelhub.serve.faults import Fault
from kernelhub.serve.server import listen
from kernelhub.serve.testing import hub_process, running_hub

FILE = "/kernels/demo/k/resolve/main/f"
CONTENT = bytes(range(256)) * 400


@pytest.fixture
def faulty(tmp_path, make_repo, commit):
    with running_hub(tmp_path / "hub") as hub:
        make_repo(hub.url, "demo/k")
        assert commit(hub.url, "demo/k", {"f": CONTENT.decode("latin-1").encode()}).status == 200
        hub.clear()
        yield hub


@pytest.fixture
def content():
    return CONTENT.decode("latin-1").encode()


def test_no_rule_no_fault(faulty, ask, content):
    assert ask(faulty.url, "GET", FILE).body == content
    assert faulty.faults.injected == []
    (record,) = faulty.requests
    assert (record.method, record.path, record.status) == ("GET", FILE, 200)
    assert record.bytes == len(content)


def test_status_with_headers_for_the_nth_request_only(faulty, ask):
    rule = Fault(effect="status", status=429, headers={"Retry-After": "1"}, path="/refs$", nth=(2,))
    faulty.faults.replace([rule])
    refs = "/api/kernels/demo/k/refs"
    answers = [ask(faulty.url, "GET", path) for path in (refs, FILE, refs, refs)]
    assert [answer.status for answer in answers] == [200, 200, 429, 200]
    assert answers[2].headers["retry-after"] == "1"
    assert [record.status for record in faulty.requests] == [200, 200, 429, 200]
    assert faulty.faults.injected == [(rule, f"GET {refs}")]


def test_garbage_is_a_success_that_is_none(faulty, ask):
    faulty.faults.replace([Fault(effect="garbage", path="/refs")])
    answer = ask(faulty.url, "GET", "/api/kernels/demo/k/refs")
    assert answer.status == 200
    with pytest.raises(ValueError, match=r"Expecting value|decode"):
        json.loads(answer.body)


@pytest.mark.parametrize("after", [0, 1, 50_000])
def test_truncated_bodies_announce_more_than_they_bring(faulty, ask, after, content):
    faulty.faults.replace([Fault(effect="truncate", path="resolve", after=after)])
    with pytest.raises(http.client.IncompleteRead) as caught:
        ask(faulty.url, "GET", FILE)
    assert caught.value.partial == content[:after]


def test_corrupted_bodies_have_the_right_length(faulty, ask, content):
    faulty.faults.replace([Fault(effect="corrupt", path="resolve", after=1000)])
    body = ask(faulty.url, "GET", FILE).body
    assert [n for n, pair in enumerate(zip(body, content, strict=True)) if len({*pair}) > 1] == [
        1000
    ]


def test_resets_and_lost_answers(faulty, ask, commit):
    faulty.faults.replace([Fault(effect="reset", method="POST")])
    with pytest.raises((ConnectionError, http.client.HTTPException)):
        commit(faulty.url, "demo/k", {"reset": b"1"})
    faulty.faults.replace([Fault(effect="lost_answer", method="POST")])
    with pytest.raises((ConnectionError, http.client.HTTPException)):
        commit(faulty.url, "demo/k", {"lost": b"1"})
    faulty.faults.replace([])
    names = {
        entry["path"] for entry in ask(faulty.url, "GET", "/api/kernels/demo/k/tree/main").json
    }
    assert names == {".gitattributes", "f", "lost"}


def test_stalls_and_slow_drips_take_their_time(faulty, ask, content):
    faulty.faults.replace([Fault(effect="stall", path="resolve", after=10, seconds=0.3)])
    began = time.monotonic()
    assert ask(faulty.url, "GET", FILE).body == content
    assert time.monotonic() - began > 0.25
    faulty.faults.replace([Fault(effect="drip", path="resolve", piece=40_000, seconds=0.1)])
    began = time.monotonic()
    assert ask(faulty.url, "GET", FILE).body == content
    assert time.monotonic() - began > 0.25


def test_chances_repeat_with_the_seed(faulty, ask):
    def run_once(seed):
        faulty.faults.replace([Fault(effect="status", probability=0.5)], seed=seed)
        return [ask(faulty.url, "GET", "/").status for _ in range(12)]

    first = run_once(1)
    assert first == run_once(1)
    assert set(first) == {200, 503}
    assert run_once(2) != first


def test_a_rate_limit_lets_through_so_many_a_second(faulty, ask):
    limit = {"Retry-After": "1"}
    faulty.faults.replace([Fault(effect="status", status=429, headers=limit, above_rate=5)])
    began = time.monotonic()
    statuses = [ask(faulty.url, "GET", "/").status for _ in range(12)]
    if time.monotonic() - began < 1:  # on a machine that is not stalled
        assert statuses == [200] * 5 + [429] * 7
    time.sleep(1.05)
    assert ask(faulty.url, "GET", "/").status == 200


def test_a_stalled_answer_does_not_hold_up_the_end(tmp_path):
    with running_hub(tmp_path, faults=[Fault(effect="stall", seconds=60)]) as hub:
        host, port = hub.url.removeprefix("http://").split(":")
        sock = socket.create_connection((host, int(port)))
        sock.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        time.sleep(0.1)
        began = time.monotonic()
    sock.close()
    assert time.monotonic() - began < 8


def test_answers_are_sent_without_delay():
    """A socket that does not name its protocol keeps Nagle's algorithm: 40 ms for each answer."""
    with listen("127.0.0.1", 0) as sock:
        assert sock.proto == socket.IPPROTO_TCP


def test_a_port_in_use_is_said_plainly(tmp_path, capsys):
    with running_hub(tmp_path / "a") as hub:
        port = hub.url.rpartition(":")[2]
        with pytest.raises(InputError, match="in use"), running_hub(tmp_path / "b", port=int(port)):
            pass
        assert run(group, ["serve", "--root", str(tmp_path / "c"), "--port", port]) == 1
    said = capsys.readouterr().err
    assert f"127.0.0.1:{port}" in said
    assert "--port" in said
    assert "Traceback" not in said


def test_the_command_serves_until_interrupted(tmp_path, ask):
    log = tmp_path / "log.jsonl"
    options = ("--access-log", str(log), "--trusted", "demo")
    with hub_process(tmp_path / "hub", *options) as (url, process):
        assert ask(url, "GET", "/").status == 200
        overview = ask(url, "GET", "/api/organizations/demo/overview").json
        assert overview["trustedKernelPublisher"] is True
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 130
    records = [json.loads(line) for line in log.read_text().splitlines()]
    paths = [(record["path"], record["status"]) for record in records]
    assert paths == [("/", 200), ("/api/organizations/demo/overview", 200)]


@pytest.mark.parametrize(
    ("options", "warned"),
    [
        (("--host", "0.0.0.0"), True),
        (("--host", "0.0.0.0", "--read-only"), False),
        ((), False),
    ],
)
def test_an_open_hub_for_other_machines_is_warned_about(tmp_path, options, warned):
    command = [sys.executable, "-m", "kernelhub.serve", "--root", str(tmp_path), "--port", "0"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(
        [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
    ) as process:
        line = process.stdout.readline()
        assert "HF_ENDPOINT=http://127.0.0.1:" in line
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=10)
    assert ("everybody there can publish" in said) is warned
    assert "Traceback" not in said


def test_usage_and_files(tmp_path):
    runner = CliRunner()
    assert "--trusted" in runner.invoke(group, ["serve", "--help"]).output
    assert run(group, ["serve"]) == 2
    (tmp_path / "tokens.toml").write_text("[[token]]\n")
    words = ["serve", "--root", str(tmp_path), "--tokens", str(tmp_path / "tokens.toml")]
    assert run(group, words) == 1


def test_a_full_disk_is_said_and_changes_nothing(tmp_path, ask, make_repo, commit):
    """RLIMIT_FSIZE stands in for a full disk: writes past it fail in the server's process."""
    resource = pytest.importorskip("resource")
    with hub_process(tmp_path / "hub") as (url, process):
        make_repo(url, "demo/k")
        soft, hard = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (40_000, hard))
        with contextlib.suppress(OSError):
            answer = commit(url, "demo/k", {"f": os.urandom(60_000).hex().encode()})
            assert answer.status >= 500
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (soft, hard))
        assert commit(url, "demo/k", {"g": b"1"}).status == 200
    folder = Path(tmp_path / "hub/kernels/demo/k.git")
    done = subprocess.run(["git", "-C", folder, "fsck"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
