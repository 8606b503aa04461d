"""Which version is taken where the newest has no build yet, and what is said of it."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable

import published
import pytest

from kernelhub import get_kernel, has_kernel
from kernelhub.cli import group, run
from kernelhub.errors import NoCompatibleVariant, NotCached
from kernelhub.serve.testing import RunningHub
from kernelhub.settings import scope

Publish = Callable[..., str]
TRUST = {"trust_remote_code": True}


def numbered(number: int) -> dict[str, bytes]:
    return published.variant({"__init__.py": b"NUMBER = %d\n" % number}, version=number)


@pytest.fixture
def unfinished(hub: RunningHub, publish: Publish) -> None:
    """Versions 1 and 2, and branches v3 and v4 on which nothing was published."""
    for number in (1, 2):
        publish("demo/unfinished", numbered(number), version=number)
    for name in ("v3", "v4"):
        published.branch(hub.url, "demo/unfinished", name)
    published.asked(hub)
    hub.clear()


@pytest.mark.usefixtures("unfinished")
@pytest.mark.parametrize("repo_id", ["demo/unfinished", "demo/unfinished>=1", "demo/unfinished!=1"])
def test_a_branch_without_a_build_is_passed_over(
    repo_id: str, caplog: pytest.LogCaptureFixture
) -> None:
    from kernelhub import resolution

    resolution._told.clear()
    with caplog.at_level(logging.WARNING, "kernelhub"):
        assert get_kernel(repo_id, **TRUST).NUMBER == 2
        assert get_kernel(repo_id, **TRUST).NUMBER == 2
        assert has_kernel(repo_id, **TRUST)
    (said,) = [r.getMessage() for r in caplog.records if "no build" in r.getMessage()]
    assert said.startswith(f"{repo_id}: version 4 holds no build")
    assert said.endswith("taking 2")
    with scope(offline=True):
        assert get_kernel(repo_id, **TRUST).NUMBER == 2


@pytest.mark.usefixtures("unfinished")
@pytest.mark.parametrize("repo_id", ["demo/unfinished==4", "demo/unfinished>2"])
def test_where_nothing_else_would_do_the_empty_version_is_named(repo_id: str) -> None:
    with pytest.raises(NoCompatibleVariant, match=r"demo/unfinished v4 .*publishes no build"):
        get_kernel(repo_id, **TRUST)


@pytest.mark.usefixtures("unfinished")
def test_an_exact_version_costs_no_look_at_others(hub: RunningHub) -> None:
    get_kernel("demo/unfinished", version=2, **TRUST)
    assert sum("/tree/" in path for path in published.asked(hub)) == 1
    assert len(hub.requests) <= 10


@pytest.mark.usefixtures("unfinished")
def test_versions_marks_those_without_a_build(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(group, ["versions", "demo/unfinished"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.endswith("  no build") for line in lines] == [False, False, True, True]
    assert run(group, ["versions", "demo/unfinished", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["without_build"] == [3, 4]


def test_offline_too_it_is_said_which_version_is_taken(
    publish: Publish, caplog: pytest.LogCaptureFixture
) -> None:
    from kernelhub import resolution

    publish("demo/offline", numbered(1), version=1)
    get_kernel("demo/offline", version=1, **TRUST)
    resolution._told.clear()
    with scope(offline=True), caplog.at_level(logging.WARNING, "kernelhub"):
        get_kernel("demo/offline", **TRUST)
        get_kernel("demo/offline", **TRUST)
    (record,) = caplog.records
    assert "taking the newest on this disk, 1" in record.getMessage()
    assert '"demo/offline==1"' in record.getMessage()


def test_offline_the_branch_of_a_version_is_that_version(publish: Publish) -> None:
    publish("demo/offline", numbered(1), version=1)
    get_kernel("demo/offline", version=1, **TRUST)
    with scope(offline=True):
        assert get_kernel("demo/offline@v1", **TRUST).NUMBER == 1
        with pytest.raises(NotCached, match="demo/offline@v2"):
            get_kernel("demo/offline@v2", **TRUST)
