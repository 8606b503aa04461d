"""`kernelhub serve`: run the embedded Hub in the foreground."""

from __future__ import annotations

import asyncio
import ipaddress
import sys
from pathlib import Path

import click

from .errors import MissingExtra


@click.command()
@click.option(
    "--root",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    help="Folder of the repositories; made where it is missing.",
)
@click.option("--port", type=click.IntRange(0, 65535), default=8765, show_default=True)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on; others may connect.",
)
@click.option(
    "--tokens",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="TOML file of tokens. Without one everybody may read and write everything.",
)
@click.option(
    "--trusted", multiple=True, metavar="ORG", help="Mark a publisher as trusted. Repeatable."
)
@click.option("--read-only", is_flag=True, help="Refuse every write.")
@click.option(
    "--access-log",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Append JSON lines to this file instead of writing to stderr.",
)
@click.option(
    "--lfs-from",
    type=click.IntRange(min=1),
    metavar="BYTES",
    help="Files from this size on are uploaded through LFS; 10 MiB if not given.",
)
def serve(
    root: Path,
    port: int,
    host: str,
    tokens: Path | None,
    trusted: tuple[str, ...],
    read_only: bool,
    access_log: Path | None,
    lfs_from: int | None,
) -> None:
    """Serve the repositories of a folder as a Hub, until interrupted."""
    try:
        from .serve.access_log import AccessRecord, LogFile
        from .serve.app import create_app
        from .serve.limits import Limits
        from .serve.server import listen, make_server, url_of
    except ModuleNotFoundError as error:
        raise MissingExtra("kernelhub serve", "serve") from error

    def to_stderr(record: AccessRecord) -> None:
        click.echo(record.line(), err=True)

    limits = Limits()
    if lfs_from is not None:
        limits = Limits(lfs_from=lfs_from, regular_bytes=max(lfs_from, limits.regular_bytes))
    log = LogFile(access_log) if access_log else None
    app = create_app(
        root,
        tokens=tokens,
        trusted=trusted,
        read_only=read_only,
        limits=limits,
        access_log=log or to_stderr,
    )
    sock = listen(host, port)
    if tokens is None and not read_only and not _is_loopback(host):
        click.echo(
            f"warning: {host} can be reached from other machines and there are no tokens:"
            " everybody there can publish. Give --tokens or --read-only.",
            err=True,
        )
    url = url_of(sock)
    click.echo(f"Serving {root} at {url} - point clients at it with HF_ENDPOINT={url}")
    sys.stdout.flush()
    server = make_server(app)
    try:
        server.run([sock])
    except asyncio.CancelledError:  # an interrupt before the server's own handler was there
        raise KeyboardInterrupt from None
    finally:
        sock.close()
        if log:
            log.close()


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
