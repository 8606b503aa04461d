"""Trust: what denies, what allows, what a machine's binding policy leaves of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import published
import pytest

from kernelhub import get_kernel, get_loaded_kernels, has_kernel, settings
from kernelhub.errors import FormatError, TrustError
from kernelhub.serve.testing import RunningHub
from kernelhub.settings import Settings, scope
from kernelhub.trust import Consent

Publish = Callable[..., str]
Command = Callable[..., Any]
ANY = {"trust_remote_code": True}


def last_consent() -> Consent:
    cache = settings.current().cache
    return [k for k in get_loaded_kernels() if cache in k.folder.parents][-1].consent


@pytest.fixture
def machine(tmp_path: Path) -> Callable[[str], Any]:
    """Put a policy where the machine's is."""

    def place(text: str) -> Any:
        path = tmp_path / "etc-policy.toml"
        path.write_text(f"schema = 1\n{text}")
        return scope(machine_policy=path)

    return place


def user(text: str) -> None:
    path = settings.current().user_policy
    assert path is not None
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"schema = 1\n{text}")


def test_what_the_users_policy_allows(publish: Publish, tmp_path: Path) -> None:
    commit = publish("demo/k", published.variant())
    publish("demo/other", published.variant({"__init__.py": b"X = 1\n"}))
    for text, consent in (
        ('publishers = ["demo"]', Consent.POLICY),
        ('repositories = ["demo/k"]', Consent.POLICY),
        (f'commits = ["demo/k@{commit}"]', Consent.POLICY),
    ):
        user(text)
        with scope(cache=tmp_path / text[:6]):
            assert get_kernel("demo/k==1").answer() == 42
            assert last_consent() is consent
    with pytest.raises(TrustError, match="'demo'") as caught:
        get_kernel("demo/other==1")
    assert "kernelhub trust add demo/other" in caught.value.hint
    moved = publish("demo/k", published.variant({"__init__.py": b"X = 2\n"}))
    assert moved != commit
    with pytest.raises(TrustError):
        get_kernel("demo/k==1")  # the policy names the commit before


def test_deny_wins_over_everything(
    publish: Publish, project: Path, command: Command, machine: Callable[[str], Any]
) -> None:
    commit = publish("trusted-org/k", published.variant())
    (project / "kernel-requirements.txt").write_text("trusted-org/k\n")
    command("lock")
    assert get_kernel("trusted-org/k")
    for subject in ("trusted-org", "trusted-org/k", f"trusted-org/k@{commit}"):
        with machine(f'deny = ["{subject}"]\npublishers = ["trusted-org"]'):
            for arguments in ({}, ANY, {"trust_remote_code": ["trusted-org/k"]}):
                with pytest.raises(TrustError, match=r"denied by .*etc-policy"):
                    get_kernel("trusted-org/k", **arguments)
        user(f'deny = ["{subject}"]')
        with pytest.raises(TrustError, match="denied by"):
            get_kernel("trusted-org/k", **ANY)
        answer = has_kernel("trusted-org/k", **ANY)
        assert not answer
        assert "denied" in answer.reason
        user("")


def test_a_binding_policy(
    publish: Publish,
    project: Path,
    command: Command,
    machine: Callable[[str], Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    publish("demo/k", published.variant({"__init__.py": b"A = 1\n"}))
    publish("ours/k", published.variant({"__init__.py": b"A = 2\n"}))
    publish("trusted-org/k", published.variant({"__init__.py": b"A = 3\n"}))
    (project / "kernel-requirements.txt").write_text("demo/k\n")
    command("lock")
    user('publishers = ["demo"]')
    monkeypatch.setenv("KERNELHUB_TRUST", "demo")
    with machine('binding = true\npublishers = ["ours"]'):
        for arguments in ({}, ANY, {"trust_remote_code": ["demo/k"]}):
            with pytest.raises(TrustError) as caught:
                get_kernel("demo/k", **arguments)
            assert "binding on this machine" in caught.value.hint
        assert get_kernel("ours/k==1").A == 2
        assert last_consent() is Consent.POLICY
        assert get_kernel("trusted-org/k==1").A == 3, "the Hub's mark still counts"
        outcome = command("trust", "add", "demo/k")
        assert "is binding: what you trust does not count" in outcome.err
    text = 'binding = true\nhub-trusted = false\npublishers = ["ours"]'
    with machine(text), pytest.raises(TrustError):
        get_kernel("trusted-org/k==1", **ANY)  # though it was allowed and remembered
    with machine("binding = true\nlocks = true"):
        assert get_kernel("demo/k").A == 1
        assert last_consent() is Consent.LOCK
    with machine('publishers = ["ours"]'):  # not binding: it only adds
        assert get_kernel("demo/k", **ANY).A == 1


def test_a_policy_that_runs_locked_kernels_only(
    publish: Publish, project: Path, command: Command, machine: Callable[[str], Any]
) -> None:
    publish("demo/k", published.variant({"__init__.py": b"A = 1\n"}))
    publish("demo/l", published.variant({"__init__.py": b"A = 2\n"}))
    (project / "kernel-requirements.txt").write_text("demo/k\n")
    command("lock")
    with machine("require-lock = true"):
        assert get_kernel("demo/k").A == 1
        with pytest.raises(TrustError, match="in no lock"):
            get_kernel("demo/l==1", **ANY)


def test_the_decision_is_remembered_offline_and_never_weakened(
    hub: RunningHub, publish: Publish, machine: Callable[[str], Any]
) -> None:
    publish("trusted-org/k", published.variant({"__init__.py": b"A = 1\n"}))
    publish("demo/k", published.variant({"__init__.py": b"A = 2\n"}))
    get_kernel("trusted-org/k==1")
    get_kernel("demo/k==1", **ANY)
    with scope(offline=True):
        assert get_kernel("trusted-org/k==1").A == 1
        with pytest.raises(TrustError, match="cannot be asked offline"):
            get_kernel("demo/k==1")  # trust_remote_code is not remembered
        with machine("hub-trusted = false"), pytest.raises(TrustError, match="no policy names it"):
            get_kernel("trusted-org/k==1")


def test_a_policy_that_cannot_be_understood_stops_every_load(
    publish: Publish, machine: Callable[[str], Any]
) -> None:
    publish("trusted-org/k", published.variant())
    user("publisher = 1")
    with pytest.raises(FormatError, match="did you mean 'publishers'"):
        get_kernel("trusted-org/k==1", **ANY)
    user("")
    with machine("binding = maybe"), pytest.raises(FormatError, match="etc-policy"):
        get_kernel("trusted-org/k==1", **ANY)


def test_the_machines_policy_cannot_be_moved_by_a_variable() -> None:
    names = ("KERNELHUB_MACHINE_POLICY", "KERNELHUB_POLICY", "KERNELHUB_CONFIG", "XDG_CONFIG_HOME")
    now = Settings.from_environment(dict.fromkeys(names, "/elsewhere"))
    assert now.machine_policy == settings.MACHINE_POLICY
    assert now.user_policy == Path("/elsewhere/policy.toml")


def test_trust_commands(publish: Publish, command: Command) -> None:
    commit = publish("demo/k", published.variant())
    with pytest.raises(TrustError):
        get_kernel("demo/k==1")
    assert command("trust", "add", f"demo/k@{commit}").code == 0
    assert get_kernel("demo/k==1").answer() == 42
    assert command("trust", "add", "demo/k", "--deny").code == 0
    with pytest.raises(TrustError, match="denied"):
        get_kernel("demo/k==1")
    assert command("trust", "remove", "demo/k", "--deny").code == 0
    assert command("trust", "add", "org").code == 0
    listed = json.loads(command("trust", "list", "--json").out)
    assert listed["user"]["allowed"] == [f"demo/k@{commit}", "org"]
    assert listed["machine"] is None
    text = command("trust", "list").out
    assert "allow org" in text
    assert f"allow demo/k@{commit}" in text
    assert command("trust", "remove", "demo/k").code == 1
    assert command("trust", "remove", f"demo/k@{commit}").code == 0
    with pytest.raises(TrustError):
        get_kernel("demo/k==1")
    assert command("trust", "add", "a b").code == 1
    assert command("trust", "add").code == 2
