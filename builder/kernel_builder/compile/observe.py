"""What a package launches: seen by calling its public functions with made-up CPU tensors.

A kernel's signature (dtypes, which integers are 1 or divisible, constexpr values, what heuristics
and pruning make of them) is only certain in a real launch. So the project's workloads run, and the
package's public functions are called, with launches recorded and not done: outputs hold garbage and
nobody looks at them. Workloads get tensors on the "meta" device, which have no memory, so any size
will do. Functions get CPU tensors in a few usual shapes and dtypes until a call launches something;
gradients are asked for as well. What no call launches is reported as not checked, never guessed.

Runs in a worker process with a `CompilingDriver` in force. Nothing here is sandboxed: it imports
and runs the project's code, as its tests do.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from kernelhub.errors import KernelHubError

DTYPES = ("float16", "bfloat16", "float32")
# Shapes of the first tensor, the second, and all others.
SHAPES = (
    ((64, 256), (256,), (256,)),
    ((64, 256), (64, 256), (64, 256)),
    ((64, 256), (64, 256), (256,)),
    ((128, 128), (128, 128), (128, 128)),
    ((2, 4, 128, 64), (2, 4, 128, 64), (2, 4, 128, 64)),
    ((2, 128, 64), (2, 128, 64), (2, 128, 64)),
    ((4096,), (4096,), (4096,)),
)
MAX_CALLS = 3
"""Calls of which a kernel's launches are kept: enough for its dtypes, few enough to compile."""
_SCALARS = {"int": 2, "float": 1.0, "bool": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """One launch of a kernel with one configuration."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    config: str


@dataclass(slots=True, kw_only=True)
class Kernel:
    """One `@triton.jit` function that is launched from the host, or may be.

    Attributes:
        name: dotted, below the package.
        calls: those that launched it, as text, at most MAX_CALLS.
        launches: one for each configuration that the author's pruning leaves for those calls.
    """

    name: str
    file: str
    line: int
    calls: list[str] = field(default_factory=list)
    launches: list[Observed] = field(default_factory=list)


class Observation:
    """All kernels of a package and what launches them.

    Attributes:
        kernels: by name, in the order of the source.
        failures: public function to why no call of it worked.
    """

    def __init__(
        self,
        package: ModuleType,
        modules: Mapping[str, ModuleType],
        workloads: Path | None = None,
    ) -> None:
        self.failures: dict[str, str] = {}
        self._by_function: dict[int, Kernel] = {}
        self._call = ""
        self.kernels: dict[str, Kernel] = {}
        pairs = list(_kernels_of(package.__name__, modules))
        for jit, kernel in pairs:
            self._by_function[id(jit)] = kernel
            self.kernels[kernel.name] = kernel
        self._functions = {kernel.name: jit for jit, kernel in pairs}
        with self._recording():
            if workloads is not None:
                self._run_workloads(workloads)
            for name, function in _public_functions(package):
                self._probe(name, function)

    def function(self, name: str) -> Any:
        """The JIT function of a kernel."""
        return self._functions[name]

    def _run_workloads(self, path: Path) -> None:
        try:
            from kernel_builder.tuning.workloads import load_workloads

            cases = list(load_workloads(path))
        except (ImportError, KernelHubError) as error:
            self.failures[path.name] = str(error).splitlines()[0]
            return
        for name, workload, case in cases:
            self._call = f"workload {name}"
            try:
                args, kwargs = workload.arguments(case, "meta")
                _backward(workload.call(*args, **kwargs))
            except Exception as error:  # noqa: BLE001 - the project's own refusal, kept as text
                self._failed(name, error)

    def _failed(self, name: str, error: Exception) -> None:
        text = f"{type(error).__name__}: {error}".splitlines()[0]
        self.failures.setdefault(name, text)

    def _probe(self, name: str, function: Callable[..., Any]) -> None:
        for dtype, shapes in itertools.product(DTYPES, SHAPES):
            before = self._count()
            try:
                with_grad = _arguments(function, dtype, shapes)
                self._call = f"{name}({_shown(with_grad)})"
                _backward(function(**with_grad))
            except Exception as error:  # noqa: BLE001 - the project's own refusal, kept as text
                self._failed(name, error)
            if self._count() > before:
                self.failures.pop(name, None)
                return

    def _count(self) -> int:
        return sum(len(kernel.launches) for kernel in self.kernels.values())

    @contextlib.contextmanager
    def _recording(self) -> Iterator[None]:
        """Launches are noted instead of done; every configuration of an autotuner is one."""
        launch, tuned = JITFunction.run, Autotuner.run

        def run(jit: Any, *args: Any, **kwargs: Any) -> None:
            self._note(jit, args, {k: v for k, v in kwargs.items() if k not in ("grid", "warmup")})

        def run_tuned(tuner: Any, *args: Any, **kwargs: Any) -> None:
            tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
            for config in tuner.prune_configs(kwargs):
                tuner.fn.run(*args, **kwargs, **config.all_kwargs(), __config=str(config))

        JITFunction.run, Autotuner.run = run, run_tuned
        try:
            yield
        finally:
            JITFunction.run, Autotuner.run = launch, tuned

    def _note(self, jit: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        kernel = self._by_function.get(id(jit))
        config = kwargs.pop("__config", None) or _plain(kwargs)
        if kernel is None:
            return
        if self._call not in kernel.calls:
            if len(kernel.calls) == MAX_CALLS:
                return
            kernel.calls.append(self._call)
        kernel.launches.append(Observed(args=args, kwargs=kwargs, config=config))


def _kernels_of(package: str, modules: Mapping[str, ModuleType]) -> Iterator[tuple[Any, Kernel]]:
    """Every `@triton.jit` function that the package's modules define, but for device functions."""
    found: dict[int, tuple[Any, Kernel]] = {}
    called: set[int] = set()
    for module_name, module in sorted(modules.items()):
        for name, value in list(vars(module).items()):
            jit = _jit_of(value)
            if jit is None or jit.fn.__module__ != module_name:
                continue
            dotted = f"{module_name}.{name}".removeprefix(f"{package}.")
            code = jit.fn.__code__
            line = jit.starting_line_number + _decorators(jit)
            found[id(jit)] = (jit, Kernel(name=dotted, file=code.co_filename, line=line))
            called |= {id(other) for other in _callees(jit)}
    for key, pair in sorted(found.items(), key=lambda item: (item[1][1].file, item[1][1].line)):
        if key not in called:
            yield pair


def _jit_of(value: Any) -> Any:
    while value is not None and not isinstance(value, JITFunction):
        inner = getattr(value, "fn", None) if hasattr(value, "run") else None
        value = inner
    return value


def _decorators(jit: Any) -> int:
    lines = jit.raw_src
    return next((i for i, line in enumerate(lines) if line.lstrip().startswith("def ")), 0)


def _callees(jit: Any) -> Iterator[Any]:
    for name in jit.fn.__code__.co_names:
        value = jit.fn.__globals__.get(name)
        if isinstance(value, JITFunction):
            yield value


def _public_functions(package: ModuleType) -> Iterator[tuple[str, Callable[..., Any]]]:
    names = getattr(package, "__all__", None) or [n for n in vars(package) if not n.startswith("_")]
    for name in names:
        value = getattr(package, name, None)
        if callable(value) and not isinstance(value, type) and _jit_of(value) is None:
            yield name, value


def _arguments(
    function: Callable[..., Any], dtype: str, shapes: tuple[tuple[int, ...], ...]
) -> dict[str, Any]:
    """Arguments for the parameters that must be given.

    Raises:
        TypeError: a parameter is neither a tensor nor a plain number.
    """
    made: dict[str, Any] = {}
    tensors = 0
    for parameter in inspect.signature(function).parameters.values():
        if parameter.default is not parameter.empty or parameter.kind in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        ):
            continue
        kind = parameter.annotation
        text = kind if isinstance(kind, str) else getattr(kind, "__name__", str(kind))
        if kind is parameter.empty or "Tensor" in text:
            shape = shapes[min(tensors, len(shapes) - 1)]
            tensors += 1
            made[parameter.name] = torch.zeros(
                shape, dtype=getattr(torch, dtype), requires_grad=True
            )
        elif text in _SCALARS:
            made[parameter.name] = _SCALARS[text]
        else:
            raise TypeError(f"parameter {parameter.name!r} of type {text} cannot be made up")
    return made


def _backward(result: Any) -> None:
    """Ask for the gradients of whatever a function returned."""
    outputs = result if isinstance(result, (tuple, list)) else (result,)
    losses = [
        value.float().sum()
        for value in outputs
        if isinstance(value, torch.Tensor) and value.requires_grad
    ]
    if losses:
        torch.stack(losses).sum().backward()


def _shown(arguments: Mapping[str, Any]) -> str:
    def text(value: Any) -> str:
        if isinstance(value, torch.Tensor):
            return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
        return repr(value)

    return ", ".join(f"{name}={text(value)}" for name, value in arguments.items())


def _plain(kwargs: Mapping[str, Any]) -> str:
    """The configuration of a launch that no autotuner made: its keyword arguments."""
    plain = (int, float, bool, str, type(None))
    return ", ".join(f"{k}: {v}" for k, v in kwargs.items() if isinstance(v, plain))


def relative(file: str, root: str) -> str:
    """A source file's name below `root`, with `/`."""
    return os.path.relpath(os.path.realpath(file), os.path.realpath(root)).replace(os.sep, "/")
