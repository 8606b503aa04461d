"""Chooses configurations for one tunable, in the order that `policy` describes.

The choice depends on the call's features, the device and the trees, on nothing else: no clock, no
measurement, no state of other calls. So every process and rank makes the same one, and making it
is safe while a CUDA graph is captured.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernelhub.errors import DispatchError, KernelHubError
from kernelhub.formats.tpu import generation
from kernelhub.formats.tree import CompiledTree, Config, DeviceFacts, Literal, Tree, compile_tree

from .adapter import Call, Tunable
from .policy import order, same_device
from .space import config_key

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundTree:
    """A tree that a tunable was given.

    Attributes:
        path: its name for people.
        overlay: whether it is the user's own.
        compiled: the tree, ready to be asked.
    """

    path: str
    overlay: bool
    compiled: CompiledTree

    @property
    def tree(self) -> Tree:
        return self.compiled.tree

    @property
    def device(self) -> DeviceFacts:
        return self.compiled.tree.device


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One configuration that may run, and why.

    Attributes:
        config: the configuration.
        origin: "overlay", "bundled", "compatible" (a tree of another device) or "default".
        source: the tree that named it; None for the author's default.
        rank: its place in the tree's leaf, from 0.
    """

    config: Config
    origin: str
    source: BoundTree | None = None
    rank: int = 0


class Dispatcher:
    """The choice for one tunable."""

    def __init__(self, tunable: Tunable) -> None:
        self.tunable = tunable
        self._load: Callable[[], Sequence[BoundTree]] | None = None
        self._trees: tuple[BoundTree, ...] | None = None
        self._ordered: dict[DeviceFacts | None, tuple[BoundTree, ...]] = {}
        self._refused: set[tuple[Any, ...]] = set()
        self._told: set[str] = set()

    @property
    def has_trees(self) -> bool:
        """Whether this tunable was given trees, for whatever device."""
        return self._load is not None

    def give(self, load: Callable[[], Sequence[BoundTree]]) -> None:
        """Give the tunable its trees; `load` is called once, when the first call needs them."""
        self._load, self._trees = load, None
        self._ordered.clear()
        self._refused.clear()

    @property
    def trees(self) -> tuple[BoundTree, ...]:
        """All trees that were given and are sound."""
        if self._trees is None:
            self._trees = () if self._load is None else tuple(self._load())
        return self._trees

    def trees_for(self, device: DeviceFacts | None) -> tuple[BoundTree, ...]:
        """The trees that choose for this device, in the order in which they are asked."""
        found = self._ordered.get(device)
        if found is None:  # two threads may both find out, and the same
            found = self._ordered[device] = tuple(order(self.trees, device))
            self._check_source(found)
            self._say_foreign_tpu(device, found)
        return found

    def choose(self, call: Call) -> Config | None:
        """The configuration for this call, None where the tunable has no trees at all."""
        return next(self.ranking(call)).config if self.has_trees else None

    def ranking(self, call: Call) -> Iterator[Choice]:
        """Every configuration for this call, best first, without those found not to run here.

        Raises:
            DispatchError: the author's pruning leaves no configuration to end with.
        """
        device, values = self.tunable.device(call), self.tunable.features(call)
        signature = (device, *_hashable(values))
        seen: set[tuple[Any, ...]] = set()
        for choice in self.all_choices(device, values, functools.partial(self._default, call)):
            key = config_key(choice.config)
            if key in seen or (key, signature) in self._refused:
                continue
            seen.add(key)
            if choice.origin == "default" or self._admitted(call, choice):
                yield choice

    def all_choices(
        self,
        device: DeviceFacts | None,
        values: Mapping[str, Literal],
        default: Callable[[], Config],
    ) -> Iterator[Choice]:
        """Every choice for these feature values, best first; some may stand there twice."""
        for bound in self.trees_for(device):
            yield from self._of_tree(bound, device, values)
        yield Choice(config=default(), origin="default")

    def launch(self, call: Call) -> tuple[Choice, Any]:
        """Launch the best configuration that runs here; returns it and the launch's result.

        Raises:
            DispatchError: none of them runs here; the last failure is named, and chained.
        """
        error: BaseException | None = None
        for choice in self.ranking(call):
            result, error = self._try(call, choice)
            if error is None:
                return choice, result
        why = "" if error is None else f": {_first_line(error)}"
        raise DispatchError(
            f"{self.tunable.name}: no configuration can run this call here{why}",
            hint="tune it for this device: kernel-builder tune ... --overlay",
        ) from error

    def refuse(self, call: Call, choice: Choice, error: BaseException) -> None:
        """Remember that a configuration does not run for calls like this; one log line each."""
        values = self.tunable.features(call)
        signature = (self.tunable.device(call), *_hashable(values))
        self._refused.add((config_key(choice.config), signature))
        self.say_once(
            f"{self.tunable.name}: configuration {dict(choice.config)} ({choice.origin}) cannot "
            f"run here, taking the next: {type(error).__name__}: {_first_line(error)}"
        )

    def say_once(self, text: str) -> None:
        """Log a warning, the same one only once."""
        if text not in self._told:
            self._told.add(text)
            logger.warning("%s", text)

    def _try(self, call: Call, choice: Choice) -> tuple[Any, BaseException | None]:
        try:
            return self.tunable.launch(call, choice.config), None
        except Exception as error:
            if not (isinstance(error, DispatchError) or self.tunable.is_unfit(error)):
                raise
            self.refuse(call, choice, error)
            return None, error

    def _admitted(self, call: Call, choice: Choice) -> bool:
        try:
            return self.tunable.admits(call, choice.config)
        except DispatchError as error:  # not a configuration of this kernel, or not any more
            self.refuse(call, choice, error)
            return False

    def _default(self, call: Call) -> Config:
        return self.tunable.default(call)

    def _of_tree(
        self, bound: BoundTree, device: DeviceFacts | None, values: Mapping[str, Literal]
    ) -> Iterator[Choice]:
        try:
            ranking = bound.compiled.choose(*(values[name] for name in bound.compiled.features))
        except (KeyError, TypeError) as error:
            self.say_once(
                f"{self.tunable.name}: {bound.path} does not apply to this call: "
                f"{type(error).__name__}: {_first_line(error)}"
            )
            return
        origin = "overlay" if bound.overlay else "bundled"
        if device is None or not same_device(bound.device, device):
            origin = "compatible"
        for rank, index in enumerate(ranking):
            config = bound.tree.configs[index]
            yield Choice(config=config, origin=origin, source=bound, rank=rank)

    def _say_foreign_tpu(self, device: DeviceFacts | None, found: Sequence[BoundTree]) -> None:
        """On a generation of TPU without a tree: whose tree is used, or that none is."""
        if device is None or generation(device.arch) is None or not self.trees:
            return
        if not found:
            self.say_once(
                f"{self.tunable.name}: no tree for {device.name}, and none of an older TPU whose "
                "choices all fit it; the author's default runs"
            )
        elif not same_device(found[0].device, device):
            self.say_once(
                f"{self.tunable.name}: no tree for {device.name}; that of {found[0].device.name} "
                "chooses"
            )

    def _check_source(self, trees: Sequence[BoundTree]) -> None:
        if not trees:
            return
        try:
            actual = self.tunable.source_hash()
        except OSError:  # no source text to compare with, as in a frozen application
            return
        for bound in trees:
            if bound.tree.source_hash != actual:
                self.say_once(
                    f"{self.tunable.name}: {bound.path} was tuned for another version of this "
                    "kernel's source; its choices may no longer be the best"
                )


def bound_tree(tree: Tree, path: str, *, overlay: bool) -> BoundTree:
    """A parsed tree, ready to be given to a dispatcher."""
    return BoundTree(path=path, overlay=overlay, compiled=compile_tree(tree))


def _hashable(values: Mapping[str, Literal]) -> tuple[tuple[str, str, Literal], ...]:
    return tuple((name, type(value).__name__, value) for name, value in values.items())


def _first_line(error: BaseException) -> str:
    text = error.message if isinstance(error, KernelHubError) else str(error)
    return text.strip().partition("\n")[0][:200]
