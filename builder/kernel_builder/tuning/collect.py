"""Run the workloads once and note every launch of every tunable inside them.

Needs the framework and a device (or Triton's interpreter); runs in the measuring process.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

from kernel_builder.ops import stand_in_for_ops
from kernel_builder.tuning.runner import Found
from kernel_builder.tuning.runners.recipe import recipe_of
from kernel_builder.tuning.site import Site
from kernel_builder.tuning.workloads import Case, Workload, Workloads, from_record, load_workloads
from kernelhub.dispatch.adapter import Tunable
from kernelhub.dispatch.capturing import LiveLaunch, capture
from kernelhub.dispatch.finding import find_tunables
from kernelhub.dispatch.record import read_record
from kernelhub.errors import LoadError, TuningError
from kernelhub.formats.tree import Config

Arguments: TypeAlias = "tuple[tuple[Any, ...], dict[str, Any]]"  # positional, and by name
_CANDIDATES = 200_000  # a space above this cannot be listed in reasonable time


class OpenSite:
    """A site whose package and workloads are imported into this process.

    Args:
        device: where inputs are made: "cuda:0", "cpu".
        bind: find the package's tunables, which from then on can be captured.

    Raises:
        LoadError: the package does not import.
        InputError, TuningError, FormatError: see `load_workloads` and `from_record`.
    """

    def __init__(self, site: Site, device: str, *, bind: bool = True) -> None:
        self.device = device
        sys.path[:0] = [path for path in site.paths if path not in sys.path]
        self._package = _package(site)
        self.workloads: Workloads = load_workloads(Path(site.workloads))
        if site.record is not None:
            self.workloads = from_record(self.workloads, read_record(site.record))
        self.tunables: Mapping[str, Tunable] = find_tunables(self._package) if bind else {}

    def collect(self, notice: Callable[[Found], None] = lambda _: None) -> list[Found]:
        """All distinct launches of all cases.

        Args:
            notice: called with each before it runs for the first time, so before all of its weight
                is known: others can compile it while it runs here.

        Raises:
            TuningError: a case raises or makes no launch; names the case.
        """
        found: dict[str, Found] = {}

        def see(name: str, case: Case, seen: list[str], live: LiveLaunch) -> None:
            seen.append(live.launch.key)
            if note(found, live, name, case):
                notice(found[seen[-1]])

        for name, workload, case in self.workloads:
            seen: list[str] = []
            self.call(name, workload, case, partial(see, name, case, seen))
            if not seen:
                raise TuningError(
                    f"workload case {name} launches no tunable",
                    hint=f"tunables of the package: {', '.join(self.tunables) or 'none'}; kernels "
                    "are found when they are module-level names",
                )
        return list(found.values())

    def call(
        self,
        name: str,
        workload: Workload,
        case: Case,
        callback: Callable[[LiveLaunch], Config | None],
        given: Arguments | None = None,
    ) -> tuple[Any, tuple[Any, ...]]:
        """Call a case's public function while `callback` sees its launches.

        Where the callback names no configuration, the author's default runs, or the first that can.

        Args:
            given: inputs to call it on, None for fresh ones.

        Returns:
            The function's result, and its arguments as it left them.

        Raises:
            TuningError: the function raises; the cause is chained.
        """
        args, kwargs = given or workload.arguments(case, self.device)

        def choose(live: LiveLaunch) -> Config | None:
            return callback(live) or runnable(live)

        try:
            with capture(choose), one_thread(), filled_memory():
                result = workload.call(*args, **kwargs)
        except TuningError:  # of the callback
            raise
        except Exception as error:
            raise TuningError(
                f"workload case {name} raised {type(error).__name__}: {error}",
                hint="run the public function on these inputs to see the traceback",
            ) from error
        return result, (*args, *kwargs.values())

    def reference(self, workload: Workload, case: Case, given: Arguments | None = None) -> Any:
        """The reference's result on the case's inputs, or on those given."""
        assert workload.reference is not None  # noqa: S101 - the caller looked
        args, kwargs = given or workload.arguments(case, self.device)
        try:
            return workload.reference(*args, **kwargs)
        except Exception as error:
            raise TuningError(
                f"the reference of workload {workload.name} raised {type(error).__name__} for "
                f"case {case.name}: {error}"
            ) from error


def runnable(live: LiveLaunch) -> Config:
    """The author's default if it fits this device, else the first configuration that does."""
    device = live.tunable.device(live.call)
    for config in (live.default, *live.candidates):
        try:
            resources = live.compile(config)
        except Exception as error:
            if not live.tunable.is_unfit(error):
                raise
            continue
        if device is None or resources.fits(device):
            return config
    return live.default


def _package(site: Site) -> ModuleType:
    if site.requirement is not None:
        from kernelhub.loader import get_kernel

        return get_kernel(site.requirement, trust_remote_code=site.trust)
    if site.framework == "torch":
        stand_in_for_ops(site.package, Path(site.paths[0]))
    try:
        return importlib.import_module(site.package)
    except Exception as error:
        raise LoadError(
            f"package {site.package} raised {type(error).__name__}: {error}",
            hint="kernel-builder check shows what keeps it from loading",
        ) from error


def note(found: dict[str, Found], live: LiveLaunch, name: str, case: Case) -> bool:
    """Take a launch in; whether it is a new one."""
    launch = live.launch
    known = found.get(launch.key)
    if known is not None:
        known.weight += case.weight
        known.held_out = known.held_out and case.held_out
        return False
    default, candidates = live.default, live.candidates
    if len(candidates) > _CANDIDATES:
        raise TuningError(
            f"{launch.kernel}: {len(candidates)} configurations are too many to list",
            hint="narrow the space with conditions",
        )
    found[launch.key] = Found(
        kernel=launch.kernel,
        source=live.tunable.source_hash(),
        point=launch.key,
        case=name,
        features=dict(live.features),
        weight=case.weight,
        held_out=case.held_out,
        candidates=[default, *(c for c in candidates if c != default)],
        recipe=recipe_of(live),
    )
    return True


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Let torch run backward passes in this thread, where `capture` sees them."""
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    with torch.autograd.set_multithreading_enabled(False):
        yield


@contextlib.contextmanager
def filled_memory() -> Iterator[None]:
    """Let torch fill fresh memory with NaN, so that what a kernel fails to write is seen.

    torch's public switch would also import its compiler, for seconds, and change what that does.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    before = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    torch._C._set_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch._C._set_deterministic_algorithms(before, warn_only=warn_only)
