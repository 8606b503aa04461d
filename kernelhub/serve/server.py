"""A listening socket and the uvicorn server behind it."""

from __future__ import annotations

import errno
import socket

import uvicorn
from starlette.types import ASGIApp

from kernelhub.errors import InputError


def listen(host: str, port: int) -> socket.socket:
    """A bound socket; port 0 takes a free one.

    Raises:
        InputError: the port is in use or not allowed, or the address is not one of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio switches Nagle's algorithm off only for sockets that name their protocol; with it on,
    # every answer of two writes waits 40 ms for a delayed acknowledgement.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    # On Windows the option would let two servers share a port.
    if hasattr(socket, "SO_EXCLUSIVEADDRUSE"):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
    else:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
        sock.listen(512)
    except (OSError, OverflowError) as error:
        sock.close()
        in_use = getattr(error, "errno", None) == errno.EADDRINUSE
        hint = "stop the other server, or choose another with --port" if in_use else None
        reason = "the port is in use" if in_use else str(error)
        raise InputError(f"cannot listen on {host}:{port}: {reason}", hint=hint) from error
    sock.set_inheritable(True)
    return sock


def url_of(sock: socket.socket) -> str:
    """The address that clients on this machine use."""
    host, port = sock.getsockname()[:2]
    if host in ("0.0.0.0", "::"):  # noqa: S104 - compared, not bound
        host = "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def make_server(app: ASGIApp) -> uvicorn.Server:
    """A server that logs no requests and gives open transfers five seconds when it is stopped."""
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        ws="none",
        timeout_keep_alive=30,
        timeout_graceful_shutdown=5,
        h11_max_incomplete_event_size=64 * 1024,
    )
    return uvicorn.Server(config)
