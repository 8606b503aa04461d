"""Workloads: what a kernel is tuned for. A small Python file in the project, `tuning/workloads.py`.

    import torch
    from kernel_builder.tuning import Case, workload
    from rms_norm import rms_norm                      # the project's own package


    @workload(
        call=rms_norm,                                 # the public function
        reference=lambda x, w: torch.nn.functional.rms_norm(x, w.shape, w),
        tolerance=2e-2,
        cases=[
            Case(M=4096, N=8192, dtype="bfloat16", weight=3),
            Case(M=4096, N=5120, dtype="bfloat16", held_out=True),
        ],
    )
    def forward(M, N, dtype, device):                  # makes the inputs of one case
        dtype = getattr(torch, dtype)
        x = torch.randn(M, N, dtype=dtype, device=device)
        return x, torch.ones(N, dtype=dtype, device=device)

The decorated function gets the case's parameters and `device` and returns the arguments of `call`:
a tuple, or a dict of keyword arguments. Random numbers are seeded before it runs. Every launch of
every tunable that `call` makes is tuned. Held-out cases are measured, not fitted.

Workloads are the module's names that do not begin with an underscore.

With `launches=` the workload also understands recorded traffic (`--from-record`): a function of a
recorded `Launch` that returns the parameters of the case that makes it, or None.
"""

from __future__ import annotations

import importlib.util
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kernel_builder.tuning.tpu.work import Works
from kernelhub.dispatch.launch import Launch
from kernelhub.errors import FormatError, InputError, Problem, TuningError

_MODULE = "_kernelhub_workloads"  # the name under which a workload file is imported


class Case:
    """One named set of parameters.

    Args:
        name: left out: made from the parameters, "M=4096 N=8192 dtype=bfloat16".
        weight: how much the case counts, any positive number.
        held_out: measured and reported, but not used to fit.
        parameters: of the function that makes the inputs.
    """

    __slots__ = ("held_out", "name", "parameters", "weight")

    def __init__(
        self,
        name: str | None = None,
        *,
        weight: float = 1.0,
        held_out: bool = False,
        **parameters: Any,
    ) -> None:
        self.name = name or " ".join(f"{key}={value}" for key, value in parameters.items())
        self.weight = weight
        self.held_out = held_out
        self.parameters = parameters

    def __repr__(self) -> str:
        return f"Case({self.name!r}, weight={self.weight}, held_out={self.held_out})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A public function, how to make its inputs, and the cases to tune for.

    Attributes:
        name: of the decorated function.
        inputs: the decorated function.
        call: the public function.
        cases: what to tune for.
        reference: called with the same arguments; its result is what `call` should return.
        tolerance: largest error, relative to the largest absolute value of the reference.
        launches: parameters of the case that makes a recorded launch, None for a launch of others.
        work: for TPUs: by a tunable's dotted name, what a launch of it does; see `tpu.work`.
    """

    name: str
    inputs: Callable[..., Any]
    call: Callable[..., Any]
    cases: tuple[Case, ...]
    reference: Callable[..., Any] | None = None
    tolerance: float = 1e-2
    launches: Callable[[Launch], Mapping[str, Any] | None] | None = None
    work: Works = field(default_factory=dict)

    def arguments(self, case: Case, device: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """(positional, keyword) arguments of `call` for one case, the same at every call.

        Raises:
            TuningError: the author's function raises or returns something else; names the case.
        """
        _seed()
        try:
            made = self.inputs(**case.parameters, device=device)
        except Exception as error:
            raise TuningError(
                f"workload case {self.name}/{case.name}: making inputs raised "
                f"{type(error).__name__}: {error}",
                hint=f"the function {self.name!r} gets the case's parameters and `device`",
            ) from error
        if isinstance(made, dict):
            return (), made
        if isinstance(made, tuple):
            return made, {}
        raise TuningError(
            f"workload case {self.name}/{case.name}: {self.name!r} returned "
            f"{type(made).__name__}, not a tuple of arguments or a dict of keyword arguments",
            hint="for one argument write `return x,`",
        )


def workload(
    *,
    call: Callable[..., Any],
    cases: Sequence[Case],
    reference: Callable[..., Any] | None = None,
    tolerance: float = 1e-2,
    launches: Callable[[Launch], Mapping[str, Any] | None] | None = None,
    work: Works | None = None,
) -> Callable[[Callable[..., Any]], Workload]:
    """Declare a workload; the decorated function makes the inputs of a case. See the module."""

    def decorate(inputs: Callable[..., Any]) -> Workload:
        return Workload(
            name=inputs.__name__,
            inputs=inputs,
            call=call,
            cases=tuple(cases),
            reference=reference,
            tolerance=tolerance,
            launches=launches,
            work={} if work is None else work,
        )

    return decorate


@dataclass(frozen=True, slots=True, kw_only=True)
class Workloads:
    """The content of a workload file."""

    path: Path
    workloads: tuple[Workload, ...]
    by_name: dict[str, tuple[Workload, Case]] = field(default_factory=dict)

    def __iter__(self) -> Iterator[tuple[str, Workload, Case]]:
        """Every case under its full name, "workload/case"."""
        for name, (owner, case) in self.by_name.items():
            yield name, owner, case

    def find(self, name: str) -> tuple[Workload, Case]:
        """The case of that full name.

        Raises:
            TuningError: there is none.
        """
        if name not in self.by_name:
            raise TuningError(f"{self.path}: there is no case {name!r}")
        return self.by_name[name]


def load_workloads(path: Path) -> Workloads:
    """Run a workload file and collect the workloads that it defines, in their order.

    The project's package must be importable already.

    Raises:
        InputError: there is no such file.
        TuningError: the file raises while it runs.
        FormatError: names used twice, weights that are not positive, no cases; all at once.
    """
    if not path.is_file():
        raise InputError(
            f"there is no workload file {path}",
            hint="write one (see `kernel_builder.tuning.workloads`), or name it in build.toml: "
            '[tuning] workloads = "..."',
        )
    spec = importlib.util.spec_from_file_location(_MODULE, path)
    assert spec is not None and spec.loader is not None  # noqa: S101, PT018 - it ends in .py
    module = importlib.util.module_from_spec(spec)
    sys.modules[_MODULE] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise TuningError(f"{path} raised {type(error).__name__}: {error}") from error
    named = {
        id(value): value
        for name, value in vars(module).items()
        if isinstance(value, Workload) and not name.startswith("_")
    }
    return checked(path, list(named.values()))


def checked(path: Path, found: Sequence[Workload]) -> Workloads:
    """Workloads whose cases are sound.

    Raises:
        FormatError: see `load_workloads`.
    """
    problems: list[str] = []
    by_name: dict[str, tuple[Workload, Case]] = {}
    if not any(owner.cases for owner in found):
        problems.append("defines no workload with cases")
    for owner in found:
        if not (owner.tolerance > 0 and math.isfinite(owner.tolerance)):
            problems.append(f"workload {owner.name}: tolerance must be a positive number")
        for case in owner.cases:
            name = f"{owner.name}/{case.name}"
            if name in by_name:
                problems.append(f"case {name} is there twice; give each a name of its own")
            if not (case.weight > 0 and math.isfinite(case.weight)):
                problems.append(f"case {name}: weight must be a positive number")
            by_name[name] = (owner, case)
    if by_name and all(case.held_out for _, case in by_name.values()):
        problems.append("all cases are held out; some must be left to fit")
    if problems:
        name = path.name
        raise FormatError(str(path), [Problem(message=text, path=name) for text in problems])
    return Workloads(path=path, workloads=tuple(found), by_name=by_name)


def from_record(workloads: Workloads, recorded: Sequence[tuple[Launch, int]]) -> Workloads:
    """The cases that make recorded launches, weighted by how often each was seen.

    Raises:
        TuningError: no workload knows some of the launches; names their kernels.
    """
    counts: dict[tuple[str, str], tuple[dict[str, Any], int]] = {}
    strangers: set[str] = set()
    for launch, count in recorded:
        matches = [
            (owner, parameters)
            for owner in workloads.workloads
            if owner.launches is not None and (parameters := owner.launches(launch)) is not None
        ]
        if not matches:
            strangers.add(launch.kernel)
        for owner, parameters in matches:
            key = (owner.name, Case(**parameters).name)
            counts[key] = (dict(parameters), counts.get(key, ({}, 0))[1] + count)
    if strangers:
        raise TuningError(
            f"the record has launches of {', '.join(sorted(strangers))} that no workload can make",
            hint="give the workload of that kernel `launches=`: from a recorded launch to the "
            "parameters of a case",
        )
    owners = [
        replace(
            owner,
            cases=tuple(
                Case(weight=float(count), **parameters)
                for (name, _), (parameters, count) in counts.items()
                if name == owner.name
            ),
        )
        for owner in workloads.workloads
    ]
    return checked(workloads.path, [owner for owner in owners if owner.cases])


def _seed() -> None:
    """Seed what inputs are made from, as far as it is loaded."""
    import random

    random.seed(0)
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None:
        numpy.random.seed(0)
    if torch is not None:  # torch.manual_seed would import its compiler, which takes seconds
        torch.default_generator.manual_seed(0)
        if torch.cuda.is_available():
            torch.cuda.manual_seed_all(0)
