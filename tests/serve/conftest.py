"""A live Hub, stock clients in processes of their own, and requests that no client would send."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from kernelhub.serve.testing import RunningHub, running_hub


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str | None:
        return self.headers.get("x-error-code")


def send(
    url: str,
    method: str,
    path: str,
    body: object = None,
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """One request whose path goes out exactly as given."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    try:
        connection.request(method, path, body=data, headers=dict(headers or {}))
        answer = connection.getresponse()
        found = {name.lower(): value for name, value in answer.getheaders()}
        return Answer(answer.status, found, answer.read())
    finally:
        connection.close()


@pytest.fixture
def ask() -> Callable[..., Answer]:
    return send


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[RunningHub]:
    with running_hub(tmp_path / "hub", trusted=["trusted-org"]) as hub:
        yield hub


@pytest.fixture
def commit() -> Callable[..., Answer]:
    """Make a commit with a plain request: `files` maps a path to bytes, or to None to remove it."""

    def make(
        url: str,
        repo: str,
        files: Mapping[str, bytes | None],
        revision: str = "main",
        parent: str | None = None,
        headers: Mapping[str, str] | None = None,
        extra: tuple[dict[str, Any], ...] = (),
    ) -> Answer:
        header = {"summary": "change", "description": "", "parentCommit": parent}
        rows = [{"key": "header", "value": {k: v for k, v in header.items() if v is not None}}]
        for path, content in files.items():
            if content is None:
                rows.append({"key": "deletedFile", "value": {"path": path}})
            else:
                value = {"path": path, "content": content.decode(), "encoding": "utf-8"}
                rows.append({"key": "file", "value": value})
        body = "\n".join(json.dumps(row) for row in (*rows, *extra)).encode()
        return send(url, "POST", f"/api/kernels/{repo}/commit/{revision}", body, headers)

    return make


@pytest.fixture
def make_repo() -> Callable[..., Answer]:
    def make(url: str, repo: str, headers: Mapping[str, str] | None = None, **facts: Any) -> Answer:
        namespace, name = repo.split("/")
        body = {"type": "kernel", "organization": namespace, "name": name, **facts}
        return send(url, "POST", "/api/repos/create", body, headers)

    return make


@pytest.fixture
def client(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a command as a user would, with only HF_ENDPOINT pointing at the Hub."""

    def run(
        url: str, *command: str | Path, check: bool = True, **env: str
    ) -> subprocess.CompletedProcess[str]:
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "PYTEST"))}
        done = subprocess.run(
            [str(word) for word in command],
            env={
                **clean,
                "HF_ENDPOINT": url,
                "HF_HOME": str(tmp_path / "home"),
                "HF_HUB_DISABLE_PROGRESS_BARS": "1",
                "GIT_TERMINAL_PROMPT": "0",
                "GIT_CONFIG_GLOBAL": os.devnull,
                "HOME": str(tmp_path),
                **env,
            },
            capture_output=True,
            text=True,
            timeout=100,
        )
        if check:
            assert done.returncode == 0, done.stdout + done.stderr
        return done

    return run


def peer_pythons() -> list[str]:
    """This interpreter, and others with another huggingface_hub: KERNELHUB_PEER_PYTHONS."""
    more = os.environ.get("KERNELHUB_PEER_PYTHONS", "")
    return [sys.executable, *(path for path in more.split(os.pathsep) if path)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "peer_python" in metafunc.fixturenames:
        pythons = peer_pythons()
        ids = ["this", *(Path(path).parents[1].name for path in pythons[1:])]
        metafunc.parametrize("peer_python", pythons, ids=ids)
