"""Seeing and steering the launches inside a block of code.

    with capture(callback): model(x)      every launch of a tunable is handed to `callback` first
    with forced({"attention.fwd": {...}}): model(x)     that kernel runs with that configuration

Both hold for the current thread or task (context variables). Tunables look at `watch.active`, one
attribute, to know that nobody watches; only then does a call take its fast path.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

from kernelhub.formats.tree import Config, Literal

from .adapter import Call, Resources, Tunable
from .launch import Launch


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveLaunch:
    """One launch that is about to happen, with its live arguments.

    Attributes:
        tunable: what is launched.
        call: its arguments. They live as long as this object is kept.
    """

    tunable: Tunable
    call: Call

    @property
    def launch(self) -> Launch:
        """The call as data."""
        return self.tunable.facts(self.call)

    @property
    def candidates(self) -> tuple[Config, ...]:
        """What the author admits for this call, after the author's own pruning."""
        return self.tunable.candidates(self.call)

    @property
    def default(self) -> Config:
        """The author's default for this call."""
        return self.tunable.default(self.call)

    @property
    def features(self) -> Mapping[str, Literal]:
        """What a tree may test."""
        return self.tunable.features(self.call)

    def run(self, config: Config, *, restore: bool = False) -> Any:
        """Launch with this configuration; not captured again. See `Tunable.launch`."""
        with _unwatched():
            return self.tunable.launch(self.call, config, restore=restore)

    def compile(self, config: Config) -> Resources:
        """Compile for this configuration without launching. See `Tunable.compile`."""
        with _unwatched():
            return self.tunable.compile(self.call, config)


class Watcher(Protocol):
    """Sees every launch of every tunable in all threads of the process (see `record`)."""

    def saw(self, tunable: Tunable, call: Call) -> None: ...


Callback = Callable[[LiveLaunch], "Config | None"]

_callback: ContextVar[Callback | None] = ContextVar("kernelhub_capture", default=None)
_forced: ContextVar[Mapping[str, Config] | None] = ContextVar("kernelhub_forced", default=None)


class _Watch:
    """`active` is 0 exactly when no launch in this process is captured, forced or recorded."""

    __slots__ = ("active", "lock", "watchers")

    def __init__(self) -> None:
        self.active = 0
        self.lock = threading.Lock()
        self.watchers: tuple[Watcher, ...] = ()

    def count(self, change: int) -> None:
        with self.lock:
            self.active += change


watch = _Watch()


@contextmanager
def capture(callback: Callback) -> Iterator[None]:
    """Hand every launch of a tunable inside the block to `callback` before it happens.

    The callback may return a configuration to launch with, or None for the ordinary choice. A
    kernel that has no tree runs with its author's default here: nothing is ever benchmarked
    inside the block.
    """
    with _active():
        token = _callback.set(callback)
        try:
            yield
        finally:
            _callback.reset(token)


@contextmanager
def forced(configs: Mapping[str, Config]) -> Iterator[None]:
    """Launch the named tunables with these configurations inside the block; others as usual.

    Args:
        configs: dotted name of a tunable below its package to its configuration.
    """
    with _active():
        token = _forced.set({**(_forced.get() or {}), **configs})
        try:
            yield
        finally:
            _forced.reset(token)


def add_watcher(watcher: Watcher) -> None:
    """Let a watcher see every launch from now on."""
    with watch.lock:
        watch.watchers = (*watch.watchers, watcher)
        watch.active += 1


def remove_watcher(watcher: Watcher) -> None:
    """Undo `add_watcher`."""
    with watch.lock:
        watch.watchers = tuple(other for other in watch.watchers if other is not watcher)
        watch.active -= 1


def watched_launch(
    tunable: Tunable,
    call: Call,
    *,
    choose: Callable[[Call], Config | None],
    ordinary: Callable[[], Any],
) -> Any:
    """The path of a launch while `watch.active`: record it, hand it over, or force it.

    Args:
        choose: the configuration that dispatch would choose, None where there is no tree.
        ordinary: what would have happened with nobody watching.
    """
    for watcher in watch.watchers:
        watcher.saw(tunable, call)
    callback, config = _callback.get(), (_forced.get() or {}).get(tunable.name)
    if callback is not None:
        with _unwatched():
            wanted = callback(LiveLaunch(tunable=tunable, call=call))
        config = config or wanted or choose(call) or tunable.default(call)
    return ordinary() if config is None else tunable.launch(call, config)


def forced_config(name: str) -> Config | None:
    """What `forced` says for this tunable in the current context."""
    return (_forced.get() or {}).get(name)


@contextmanager
def _active() -> Iterator[None]:
    watch.count(1)
    try:
        yield
    finally:
        watch.count(-1)


@contextmanager
def _unwatched() -> Iterator[None]:
    tokens = _callback.set(None), _forced.set(None)
    try:
        yield
    finally:
        _callback.reset(tokens[0])
        _forced.reset(tokens[1])
