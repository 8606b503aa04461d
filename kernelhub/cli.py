"""The `kernelhub` command: names of its commands, and where errors become exit codes.

Exit codes: 0 done; 1 what was asked for failed, stderr says why; 2 wrong usage; 3 a check found
faults or a goal was missed; 130 interrupted.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence

import click

from ._version import __version__
from .errors import KernelHubError

EXIT_FAILED = 1
EXIT_FAULTS = 3
EXIT_INTERRUPTED = 130


class LazyGroup(click.Group):
    """A group whose commands are imported when they are asked for.

    Args:
        homes: command name to (module, attribute, one line of help).
    """

    def __init__(self, *args: object, homes: Mapping[str, tuple[str, str, str]], **kw: object):
        super().__init__(*args, **kw)  # type: ignore[arg-type]
        self.context_settings.setdefault("help_option_names", ["-h", "--help"])  # commands inherit
        self.homes = dict(homes)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.homes)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.homes:
            return None
        module, attribute, _ = self.homes[cmd_name]
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)  # noqa: S101 - a wrong table is our own fault
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if not self.homes:
            return
        with formatter.section("Commands"):
            formatter.write_dl([(name, home[2]) for name, home in self.homes.items()])


def run(group: click.Group, args: Sequence[str] | None = None) -> int:
    """Run a command group and return its exit code; every deliberate error ends up here."""
    try:
        result = group.main(args=args, standalone_mode=False)
    except KernelHubError as error:
        click.echo(f"error: {error}", err=True)
        return EXIT_FAILED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.exceptions.Exit as error:
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return EXIT_INTERRUPTED
    return result if isinstance(result, int) else 0


# From finding a kernel to running it, which `--help` keeps.
HOMES: dict[str, tuple[str, str, str]] = {
    "versions": ("kernelhub.cli_load", "versions", "List the versions of a kernel."),
    "variants": ("kernelhub.cli_load", "variants", "Show which variant is taken here, and why."),
    "inspect": ("kernelhub.cli_inspect", "command", "Look at a kernel before trusting it."),
    "trust": ("kernelhub.cli_trust", "trust", "Say whose kernels may run."),
    "lock": ("kernelhub.cli_lock", "lock", "Pin what the project asks for in kernelhub.lock."),
    "sync": ("kernelhub.cli_lock", "sync_command", "Fetch every locked kernel and verify it."),
    "verify": ("kernelhub.cli_cache", "verify", "Check every kernel on this disk."),
    "cache": ("kernelhub.cli_cache", "cache", "List, prune and repair the kernels on this disk."),
    "bundle": ("kernelhub.cli_bundle", "bundle", "Write the locked kernels into one file."),
    "unbundle": ("kernelhub.cli_bundle", "unbundle", "Take kernels out of a bundle, offline."),
    "explain": ("kernelhub.cli_explain", "command", "Which configuration a kernel runs, and why."),
    "overlay": ("kernelhub.cli_overlay", "command", "List and remove your own trees."),
    "serve": ("kernelhub.cli_serve", "serve", "Serve the repositories of a folder as a Hub."),
}


@click.group(cls=LazyGroup, homes=HOMES)
@click.version_option(__version__, prog_name="kernelhub")
def group() -> None:
    """Load, pin, verify and explain kernels from a Hub."""


def main() -> None:
    """Entry point of the `kernelhub` script."""
    sys.exit(run(group))
