"""Ways to a Hub that are not straight: a proxy, and a certificate authority of one's own."""

from __future__ import annotations

import datetime
import http.server
import os
import ssl
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import published
import pytest

from kernelhub.serve.testing import RunningHub

Publish = Callable[..., str]
FAR = "http://hub.example"  # a name that nobody knows but the proxy
LOAD = """
from kernelhub import get_kernel
print(get_kernel("demo/k", version=1, trust_remote_code=True).answer())
"""


def load(**variables: str) -> subprocess.CompletedProcess[str]:
    """Load in a new process, since the network library reads its variables once."""
    environment = {n: v for n, v in os.environ.items() if not n.lower().endswith("_proxy")}
    environment["PYTHONPATH"] = os.pathsep.join(entry for entry in sys.path if entry)
    return subprocess.run(
        [sys.executable, "-c", LOAD],
        env=environment | variables,
        capture_output=True,
        text=True,
        timeout=60,
    )


@contextmanager
def forwarding(hub: RunningHub, tls: ssl.SSLContext | None = None) -> Iterator[tuple[int, list]]:
    """A proxy to the Hub, or with `tls` a server of its own before it; gives its port."""
    seen: list[tuple[str, str | None]] = []

    class Forward(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append((self.path, self.headers.get("Proxy-Authorization")))
            there = urllib.request.Request(hub.url + self.path.removeprefix(FAR))
            straight = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            with straight.open(there, timeout=30) as answer:
                body = answer.read()
                self.send_response(answer.status)
                for name in ("Content-Type", "ETag", "X-Repo-Commit"):
                    if value := answer.headers.get(name):
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Quiet."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Forward) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.server_port, seen
        server.shutdown()
        thread.join()


def test_a_proxy_that_asks_for_a_password(hub: RunningHub, publish: Publish) -> None:
    publish("demo/k", published.variant())
    with forwarding(hub) as (port, seen):
        done = load(HF_ENDPOINT=FAR, HTTP_PROXY=f"http://me:secret@127.0.0.1:{port}")
        assert done.stdout.strip() == "42", done.stderr
        assert seen
        assert all(path.startswith(FAR) for path, _ in seen)
        assert {password for _, password in seen} == {"Basic bWU6c2VjcmV0"}
    done = load(HF_ENDPOINT=hub.url, HTTP_PROXY=f"http://127.0.0.1:{port}", NO_PROXY="127.0.0.1")
    assert done.stdout.strip() == "42", done.stderr


def test_a_certificate_authority_of_ones_own(
    hub: RunningHub, publish: Publish, tmp_path: Path
) -> None:
    publish("demo/k", published.variant())
    with forwarding(hub, _certified(tmp_path)) as (port, _):
        url = f"https://localhost:{port}"
        refused = load(HF_ENDPOINT=url)
        assert "certificate verify failed" in refused.stderr
        assert "hint: SSL_CERT_FILE names" in refused.stderr
        done = load(HF_ENDPOINT=url, SSL_CERT_FILE=str(tmp_path / "ca.pem"))
        assert done.stdout.strip() == "42", done.stderr


def _certified(folder: Path) -> ssl.SSLContext:
    """A server's context for localhost; `ca.pem` in the folder vouches for its certificate."""
    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.timezone.utc)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    (folder / "ca.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(private)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "ca.pem", folder / "key.pem")
    return context
