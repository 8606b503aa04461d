"""Every error of a load begins with the kernel that it is about, and ends with a remedy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import published
import pytest

from kernelhub import get_kernel, has_kernel
from kernelhub.errors import (
    HubAuthError,
    HubRateLimited,
    HubUnavailable,
    InputError,
    KernelHubError,
    NoCompatibleVariant,
    RepositoryNotFound,
    RequirementError,
    StoreError,
    VersionNotFound,
)
from kernelhub.serve.faults import Fault
from kernelhub.serve.testing import RunningHub
from kernelhub.settings import scope

Publish = Callable[..., str]
TRUST = {"trust_remote_code": True}


def failure(*arguments: object, **named: Any) -> KernelHubError:
    with scope(interpret=False, timeout=5.0), pytest.raises(KernelHubError) as caught:
        get_kernel(*arguments, **{**TRUST, **named})  # type: ignore[arg-type]
    return caught.value


@pytest.mark.parametrize(
    ("arguments", "kind", "message", "hint"),
    [
        ({"version": 3}, VersionNotFound, "has no version 3; published versions: 1", "demo/k==1"),
        ({"version": ">3"}, VersionNotFound, "has no version >3; published versions: 1", "==1"),
        ({"revision": "2145ed2"}, VersionNotFound, "has no revision '2145ed2'", "40 digits"),
        ({"revision": "nope"}, VersionNotFound, "has no revision 'nope'", "kernelhub versions"),
        ({"revision": "main"}, NoCompatibleVariant, "no build", "kernelhub versions demo/k` lists"),
        ({"version": 1, "backend": "xpu"}, NoCompatibleVariant, "no published variant", "author"),
        ({"version": True}, InputError, "version=True", "version=1"),
        ({"version": "1.0"}, RequirementError, "expected one of", "org/name==1"),
        ({"version": "-other"}, RequirementError, "expected one of", "org/name==1"),
        ({"version": "\u00b2"}, RequirementError, "not '\u00b2'", "org/name==1"),
        ({"version": ""}, RequirementError, "expected one of", "org/name==1"),
        ({"revision": 7}, InputError, "revision=7", "get_kernel("),
    ],
)
def test_what_is_not_there(
    publish: Publish,
    arguments: dict[str, Any],
    kind: type[KernelHubError],
    message: str,
    hint: str,
) -> None:
    publish("demo/k", published.variant())
    error = failure("demo/k", **arguments)
    assert type(error) is kind
    assert "demo/k" in error.message
    assert message in error.message
    assert hint in str(error.hint)


@pytest.mark.parametrize(
    ("status", "kind", "hint"),
    [
        (401, HubAuthError, "HF_TOKEN"),
        (403, HubAuthError, "HF_TOKEN"),
        (404, RepositoryNotFound, "check the name"),
        (501, HubUnavailable, "try again later"),
        (429, HubRateLimited, "asks to wait 3600 s"),
    ],
)
@pytest.mark.parametrize("path", ["/refs", "/tree/", "/resolve/"])
def test_a_hub_that_refuses(
    hub: RunningHub, publish: Publish, path: str, status: int, kind: type[Exception], hint: str
) -> None:
    publish("demo/k", published.variant())
    headers = {"Retry-After": "3600"} if status == 429 else {}
    hub.faults.replace([Fault(effect="status", status=status, headers=headers, path=path)])
    error = failure("demo/k", version=1)
    assert type(error) is kind
    assert error.message.startswith("demo/k")
    assert hint in str(error.hint)


def test_a_cache_that_cannot_be_made(publish: Publish, tmp_path: Any) -> None:
    publish("demo/k", published.variant())
    (tmp_path / "file").write_bytes(b"")
    with scope(cache=tmp_path / "file" / "cache"):
        error = failure("demo/k", version=1)
    assert type(error) is StoreError
    assert error.message.startswith("demo/k v1")
    assert "KERNELHUB_CACHE" in str(error.hint)


def test_a_framework_that_there_is_not() -> None:
    error = failure("demo/k", framework="tf")
    assert error.message.startswith("framework='tf'")
    assert "torch, jax" in str(error.hint)


def test_a_name_that_is_no_text() -> None:
    for function in (get_kernel, has_kernel):
        with pytest.raises(InputError, match="repo_id=None"):
            function(None)  # type: ignore[arg-type]


def test_code_of_a_kernel_that_fails(publish: Publish) -> None:
    publish("demo/broken", published.variant({"__init__.py": b"1 / 0\n"}))
    error = failure("demo/broken", version=1)
    assert error.message.startswith("demo/broken v1")
    assert "author" in str(error.hint)
