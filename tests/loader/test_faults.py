"""A Hub that fails: each fault is survived or refused with a clear error, and nothing is lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import published
import pytest

from kernelhub import get_kernel, has_kernel, settings
from kernelhub.errors import (
    HubAuthError,
    HubError,
    HubRateLimited,
    HubUnavailable,
    IntegrityError,
    KernelHubError,
    NotFoundError,
    RepositoryNotFound,
)
from kernelhub.serve.faults import Fault
from kernelhub.serve.testing import RunningHub, running_hub
from kernelhub.settings import scope
from kernelhub.sources.refusals import server_wait
from kernelhub.sources.transport import origin, user_agent

Publish = Callable[..., str]
TRUST = {"trust_remote_code": True}
BODY = bytes(range(256)) * 1024  # 256 KiB
PLACES = ("/refs$", "/tree/", "metadata.json", r"data\.bin")


@pytest.fixture
def kernel(publish: Publish) -> str:
    """A kernel with a file of 256 KiB; its id changes with the test's Hub."""
    files = published.variant({"__init__.py": published.PLAIN, "data.bin": BODY})
    publish("demo/k", files, lfs=["build/torch-cpu/data.bin"])
    return "demo/k"


def check(kernel: str) -> None:
    module = get_kernel(kernel, version=1, **TRUST)
    assert module.answer() == 42
    visible = list(settings.current().cache.glob("v1/*/*/*/build/*/data.bin"))
    assert [path.read_bytes() == BODY for path in visible] == [True]


@pytest.mark.usefixtures("cut_answers")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    "fault",
    [
        Fault(effect="status", status=503, nth=(1,)),
        Fault(effect="status", status=429, headers={"Retry-After": "1"}, nth=(1,)),
        Fault(effect="reset", nth=(1,)),
        Fault(effect="truncate", after=20, nth=(1,)),
    ],
    ids=lambda fault: f"{fault.effect}{fault.status}",
)
def test_a_passing_fault_is_survived(
    hub: RunningHub, kernel: str, place: str, fault: Fault
) -> None:
    fault = Fault(**{**_facts(fault), "path": place})
    hub.faults.replace([fault])
    began = time.monotonic()
    check(kernel)
    if fault.headers:
        assert time.monotonic() - began >= 1
    assert len(hub.faults.injected) == len(fault.nth)


def _facts(fault: Fault) -> dict[str, object]:
    return {name: getattr(fault, name) for name in Fault.__slots__}


@pytest.mark.parametrize("place", [PLACES[0], PLACES[3]])
@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (Fault(effect="status", status=401), HubAuthError),
        (Fault(effect="status", status=403), HubAuthError),
        (
            Fault(effect="status", status=401, headers={"X-Error-Code": "RepoNotFound"}),
            RepositoryNotFound,
        ),
        (Fault(effect="status", status=403, headers={"X-Error-Code": "GatedRepo"}), HubAuthError),
        (Fault(effect="status", status=404), NotFoundError),
        (Fault(effect="status", status=418), HubError),
        (Fault(effect="status", status=302), HubUnavailable),
        (Fault(effect="status", status=501, body=b"<html>" + b"x" * 9999), HubUnavailable),
        (Fault(effect="status", status=429, headers={"Retry-After": "99"}), HubRateLimited),
    ],
    ids=lambda v: f"{v.status}{v.headers.get('X-Error-Code', '')}" if hasattr(v, "status") else "",
)
def test_a_refusal_is_one_clear_error(
    hub: RunningHub, kernel: str, place: str, fault: Fault, kind: type[KernelHubError]
) -> None:
    hub.faults.replace([Fault(**{**_facts(fault), "path": place})])
    with scope(timeout=20.0), pytest.raises(kind) as caught:
        get_kernel(kernel, version=1, **TRUST)
    if isinstance(caught.value, HubError):
        assert caught.value.status == fault.status
        assert hub.url in str(caught.value)
    assert len(str(caught.value)) < 1200
    assert len(hub.faults.injected) == 1
    hub.faults.replace([])
    check(kernel)


@pytest.mark.parametrize("place", PLACES[:2])
@pytest.mark.parametrize(
    "body",
    [b"", b"<html>login", b"[]", b"{}", b"null", b'{"branches": [1]}', b'[{"type":"file"}]',
     b'{"branches":[{"name":"v1","targetCommit":"../x"}]}', b"[" * 100_000, b"\xff\xfe",
     b'[{"type":"file","path":"build/../../x","oid":"' + b"0" * 40 + b'","size":1}]'],
)  # fmt: skip
def test_garbage_is_refused(hub: RunningHub, kernel: str, place: str, body: bytes) -> None:
    hub.faults.replace([Fault(effect="status", status=200, path=place, body=body)])
    with pytest.raises(KernelHubError) as caught:
        get_kernel(kernel, version=1, **TRUST)
    assert isinstance(caught.value, (HubUnavailable, IntegrityError, NotFoundError))
    assert not list(settings.current().cache.glob("v1/*/*/*/build/*"))
    hub.faults.replace([])


@pytest.mark.parametrize(
    "names",
    [
        ["../evil.py"],
        ["a/../../evil.py"],
        ["C:evil.py"],
        ["nul.txt"],
        ["a\\b.py"],
        ["A.py", "a.py"],
        ["a\x00b"],
        [""],
    ],
)
def test_names_that_are_not_safe(hub: RunningHub, kernel: str, names: list[str]) -> None:
    import json

    entries = [
        {"type": "file", "path": f"build/torch-cpu/{name}", "oid": "0" * 40, "size": 1}
        for name in names
    ]
    body = json.dumps(entries).encode()
    hub.faults.replace([Fault(effect="status", status=200, path="/tree/", body=body)])
    with pytest.raises(IntegrityError, match="not safe"):
        get_kernel(kernel, version=1, **TRUST)


def test_wrong_bytes_once_and_always(hub: RunningHub, kernel: str) -> None:
    corrupt = Fault(effect="corrupt", path=r"data\.bin", after=100)
    hub.faults.replace([corrupt])
    with pytest.raises(IntegrityError, match="other bytes than the Hub lists") as caught:
        get_kernel(kernel, version=1, **TRUST)
    assert list(caught.value.faults) == ["build/torch-cpu/data.bin"]
    assert len(hub.faults.injected) == 2
    hub.faults.replace([Fault(**{**_facts(corrupt), "nth": (1,)})])
    check(kernel)


@pytest.mark.usefixtures("cut_answers")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_cut_download_is_continued_also_by_another_process(hub: RunningHub, kernel: str) -> None:
    """The Hub hangs up again and again: each attempt goes on where the last one ended."""
    cut = Fault(effect="truncate", path=r"data\.bin", after=30_000)
    hub.faults.replace([cut])
    with scope(timeout=1.0), pytest.raises(HubUnavailable):
        get_kernel(kernel, version=1, **TRUST)
    (part,) = settings.current().cache.rglob("data.bin.part")
    kept = part.stat().st_size
    assert kept > 0
    hub.faults.replace([])
    published.asked(hub)
    hub.clear()
    check(kernel)
    published.asked(hub)
    (record,) = [r for r in hub.requests if "data.bin" in r.path or "lfs" in r.path]
    assert record.range == f"bytes={kept}-"


@pytest.mark.usefixtures("cut_answers")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_part_that_is_not_the_beginning_is_found_out(hub: RunningHub, kernel: str) -> None:
    hub.faults.replace([Fault(effect="truncate", path=r"data\.bin", after=30_000)])
    with scope(timeout=0.7), pytest.raises(HubUnavailable):
        get_kernel(kernel, version=1, **TRUST)
    hub.faults.replace([])
    (part,) = settings.current().cache.rglob("data.bin.part")
    for size in (len(BODY) + 5, 1000):
        part.write_bytes(b"!" * size)
        if size > len(BODY):
            continue
    check(kernel)


@pytest.mark.usefixtures("cut_answers")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_hub_that_hangs_is_left_at_the_deadline(hub: RunningHub, kernel: str) -> None:
    for place in ("/refs$", r"data\.bin"):
        hub.faults.replace([Fault(effect="stall", path=place, after=1, seconds=30)])
        began = time.monotonic()
        with scope(timeout=1.0), pytest.raises(HubUnavailable):
            get_kernel(kernel, version=1, **TRUST)
        assert time.monotonic() - began < 5


@pytest.mark.usefixtures("cut_answers")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_slow_hub_is_left_at_the_deadline(hub: RunningHub, kernel: str) -> None:
    drip = Fault(effect="drip", path=r"data\.bin", piece=1000, seconds=0.05)
    hub.faults.replace([drip])
    began = time.monotonic()
    with scope(timeout=1.0), pytest.raises(HubUnavailable, match="KERNELHUB_TIMEOUT"):
        get_kernel(kernel, version=1, **TRUST)
    assert time.monotonic() - began < 5
    hub.faults.replace([])
    check(kernel)


def test_doubt_about_a_publisher_is_no(hub: RunningHub, publish: Publish) -> None:
    publish("trusted-org/k", published.variant())
    bodies = (b"null", b"[]", b'{"trustedKernelPublisher": "yes"}', b"{}")
    for body in bodies:
        hub.faults.replace([Fault(effect="status", status=200, path="/overview", body=body)])
        assert "'trusted-org' as trusted" in has_kernel("trusted-org/k", version=1).reason
    for status in (401, 404, 403):
        hub.faults.replace([Fault(effect="status", status=status, path="/overview")])
        assert not has_kernel("trusted-org/k", version=1)
    hub.faults.replace([Fault(effect="garbage", path="/overview")])
    assert isinstance(has_kernel("trusted-org/k", version=1).error, HubUnavailable)
    hub.faults.replace([])
    assert has_kernel("trusted-org/k", version=1)


def test_nobody_answers(tmp_path: Path) -> None:
    with scope(timeout=1.5), pytest.raises(HubUnavailable) as caught:
        get_kernel("demo/k", version=1, **TRUST)
    assert "HF_ENDPOINT" in (caught.value.hint or "")
    with scope(timeout=1.5):
        assert not has_kernel("demo/k", version=1, **TRUST)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[RunningHub]:
    with running_hub(tmp_path / "elsewhere") as other:
        yield other


def test_the_token_goes_to_the_hub_and_nowhere_else(
    tmp_path: Path, elsewhere: RunningHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page of the listing, and a file, are elsewhere: neither request carries the token."""
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    with running_hub(tmp_path / "hub", tokens={"hf_secret": "write"}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        auth = {"Authorization": "Bearer hf_secret"}
        published.publish(hub.url, "demo/k", published.variant(), headers=auth)
        there = f"{elsewhere.url}/kernels/demo/k/x"
        hub.faults.replace(
            [Fault(effect="status", status=302, path="__init__", headers={"Location": there})]
        )
        with pytest.raises(NotFoundError):
            get_kernel("demo/k", version=1, **TRUST)
        published.asked(elsewhere)
        assert {r.user for r in elsewhere.requests} == {"anonymous"}
        assert {r.user for r in hub.requests if r.method == "GET"} != {"anonymous"}
        next_page = f'<{elsewhere.url}/api>; rel="next"'
        hub.faults.replace(
            [Fault(effect="status", status=200, path="/tree/", body=b"[]",
                   headers={"Link": next_page})]
        )  # fmt: skip
        elsewhere.clear()
        with scope(cache=tmp_path / "fresh"), pytest.raises(HubUnavailable, match="elsewhere"):
            get_kernel("demo/k", version=1, **TRUST)
        assert published.asked(elsewhere) == []


def test_a_private_kernel_without_a_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running_hub(tmp_path / "hub", tokens={"hf_secret": "write"}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("HF_TOKEN", "hf_wrong")
        with pytest.raises((HubAuthError, RepositoryNotFound)) as caught:
            get_kernel("demo/k", version=1, **TRUST)
        assert "token" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"Retry-After": "7"}, 7),
        ({"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "-1"}, None),
        ({"RateLimit": '"api";r=0;t=55'}, 55),
        ({"RateLimit": '"api";r=3;t=55'}, None),
        ({"Retry-After": "2", "RateLimit": '"api";r=0;t=55'}, 2),
        ({}, None),
    ],
)
def test_what_the_hub_asks_to_wait(headers: dict[str, str], wait: float | None) -> None:
    assert server_wait(headers) == wait


def test_telemetry_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    from kernelhub import __version__

    monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", True)
    assert user_agent() == f"kernelhub/{__version__}"


def test_origins() -> None:
    assert origin("https://h/a") == origin("https://h:443/b")
    assert origin("http://h") != origin("https://h")
    assert origin("http://h:1") != origin("http://h:2")
