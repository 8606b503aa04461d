"""Reporters for the command lines: bars on a terminal, plain lines elsewhere, silence for `--json`.

Progress goes to stderr, so that stdout holds results only.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

import click

from kernelhub.cli_text import amount
from kernelhub.reporter import SILENT, Reporter

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class PlainReporter(Reporter):
    """One line at the start of each stage, for logs and pipes."""

    def stage(self, name: str, total: int | None = None, unit: str = "") -> None:
        size = "" if total is None else f" ({amount(total, unit)})"
        click.echo(f"{name}{size}", err=True)

    def say(self, text: str) -> None:
        click.echo(text, err=True)


class BarReporter(Reporter):
    """A bar per stage, drawn by rich; finished stages stay on the screen."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task: TaskID | None = None

    def stage(self, name: str, total: int | None = None, unit: str = "") -> None:
        self.done()
        self._task = self._progress.add_task(name, total=total, unit=unit, note="")

    def advance(self, amount: int = 1, note: str = "") -> None:
        if self._task is not None:
            self._progress.update(self._task, advance=amount, note=note)

    def done(self, note: str = "") -> None:
        if self._task is None:
            return
        task = self._progress.tasks[self._progress.task_ids.index(self._task)]
        total = task.total if task.total is not None else task.completed
        self._progress.update(self._task, total=total or 1, completed=total or 1, note=note)
        self._task = None

    def say(self, text: str) -> None:
        self._progress.console.print(text, markup=False, highlight=False)


@contextmanager
def reporting(*, silent: bool = False) -> Iterator[Reporter]:
    """The reporter that suits stderr: bars on a terminal where rich is installed, else lines.

    Args:
        silent: report nothing, for `--json` and `--quiet`.
    """
    if silent:
        yield SILENT
        return
    progress = _progress_on_terminal() if sys.stderr.isatty() else None
    if progress is None:
        yield PlainReporter()
        return
    with progress:
        reporter = BarReporter(progress)
        yield reporter
        reporter.done()


@contextmanager
def tidy_termination() -> Iterator[None]:
    """Let SIGTERM end the block as an exception does, so that temporary folders are removed."""

    def leave(number: int, _: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _progress_on_terminal() -> Progress | None:
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
    except ImportError:
        return None
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeRemainingColumn(compact=True),
        TextColumn("{task.fields[note]}", style="dim"),
        console=Console(stderr=True),
    )
