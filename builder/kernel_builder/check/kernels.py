"""Rules of Triton kernels: each compiles for each target without a GPU and fits its shared memory.

The signature of a kernel is the one with which the package itself launches it, seen by calling its
workloads or its public functions in a worker process (see `compile.observe`). A kernel that no call
launched is reported as not checked.
"""

from __future__ import annotations

import importlib.util
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from kernel_builder.compile import pool
from kernel_builder.compile.launch import Refusal, Resources
from kernel_builder.compile.targets import DEFAULT_ARCHS, Target, parse_target
from kernelhub.errors import Problem
from kernelhub.formats.build_toml import BuildFile
from kernelhub.reporter import Reporter

from .source import PackageSource, Subject

_NEEDED = ("torch", "triton")


def find(subject: Subject) -> Iterator[Problem]:
    """Compile every Triton kernel of the torch packages."""
    targets, declared = targets_of(subject.build_file, subject.targets)
    for package in subject.packages:
        if package.framework == "torch" and _uses_triton(package):
            yield from _check(subject, package, targets, declared)


def targets_of(
    build_file: BuildFile | None, asked: Iterable[str]
) -> tuple[tuple[Target, ...], bool]:
    """What to compile for, and whether somebody named it.

    Raises:
        InputError: what was asked for is no architecture.
    """
    if asked := tuple(asked):
        return tuple(dict.fromkeys(map(parse_target, asked))), True
    torch = build_file.frameworks.get("torch") if build_file is not None else None
    if torch is None:
        return (), False
    named = {"cuda": torch.cuda_capabilities, "rocm": torch.rocm_archs}
    texts = [
        text
        for backend in torch.backends
        for text in (named.get(backend) or DEFAULT_ARCHS.get(backend, ()))
    ]
    return tuple(dict.fromkeys(map(parse_target, texts))), any(named.values())


def _uses_triton(package: PackageSource) -> bool:
    return any("triton" in module.text for module in package.modules)


def _check(
    subject: Subject, package: PackageSource, targets: tuple[Target, ...], declared: bool
) -> Iterator[Problem]:
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing or not targets:
        why = (
            f"{' and '.join(missing)} is not installed"
            if missing
            else "Triton compiles for CUDA and ROCm, and this kernel has neither backend"
        )
        yield _note(package.inside, f"kernels were not compiled: {why}", "kernel-unchecked")
        return
    with tempfile.TemporaryDirectory(prefix="kernel-builder-") as spare:
        compiled = _subject(subject, package, Path(spare))
        yield from _compile(compiled, package, targets, declared, subject.reporter)


def _subject(subject: Subject, package: PackageSource, spare: Path) -> pool.Subject:
    """What is compiled; `spare` holds the results where the cache cannot be written."""
    cache = subject.settings.cache / "compiled"
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError:
        cache = spare
    return pool.Subject(
        root=subject.root,
        folder=package.folder.parent,
        package=package.name,
        workloads=_workloads(subject),
        cache=cache if os.access(cache, os.W_OK) else spare,
    )


def _compile(
    compiled: pool.Subject,
    package: PackageSource,
    targets: tuple[Target, ...],
    declared: bool,
    reporter: Reporter,
) -> Iterator[Problem]:
    with pool.Pool(compiled) as workers:
        reporter.stage(f"importing {package.name} and calling it")
        stock = workers.take_stock()
        reporter.done()
        if isinstance(stock, Refusal):
            yield _not_importable(package, stock)
            return
        for kernel in stock.kernels:
            yield _seen(kernel, stock)
        launched = sum(1 for kernel in stock.kernels if kernel.configs)
        if not launched:
            return
        reporter.stage("compiling Triton kernels", launched * len(targets), "kernels and targets")
        for outcomes in workers.compile_all(stock.kernels, targets):
            yield from _judge(outcomes, declared)
            reporter.advance(1, f"{outcomes[0].kernel.name} on {outcomes[0].target.arch}")
        reporter.done()


def _not_importable(package: PackageSource, refusal: Refusal) -> Problem:
    lacks = refusal.reason.startswith("ModuleNotFoundError") and package.name not in refusal.reason
    if lacks:  # of this machine, not of the project; undeclared imports have a rule of their own
        return _note(
            package.inside,
            f"kernels were not compiled: {refusal.reason}",
            "kernel-unchecked",
            hint="install what the package imports to have its kernels checked",
        )
    return Problem(
        path=f"{package.inside}/__init__.py",
        message=f"kernels were not compiled, the package cannot be imported: {refusal.reason}",
        hint="see the other faults, or import it yourself for the whole traceback",
        code="kernel-import",
    )


def _workloads(subject: Subject) -> str | None:
    named = subject.build_file.workloads if subject.build_file is not None else None
    return named if named is not None and (subject.root / named).is_file() else None


def _seen(kernel: pool.Found, stock: pool.Inventory) -> Problem:
    if kernel.configs:
        total = len(kernel.configs)
        some = f", {pool.CONFIGS} of {total} configurations" if total > pool.CONFIGS else ""
        message = f"{kernel.name} is compiled as launched by {'; '.join(kernel.calls)}{some}"
        return _note(kernel.path, message, "kernel-checked", kernel.line)
    why = "; ".join(f"{name} raised {reason}" for name, reason in stock.failures.items())
    return _note(
        kernel.path,
        f"{kernel.name} was not compiled: no call that was tried launches it"
        + (f" ({why})" if why else ""),
        "kernel-unchecked",
        kernel.line,
        "a workload ([tuning] workloads in build.toml) that launches it lets it be checked",
    )


def _judge(outcomes: tuple[pool.Outcome, ...], declared: bool) -> Iterator[Problem]:
    """One kernel on one target: faults where no configuration will do, notes where some do not."""
    kernel, target = outcomes[0].kernel, outcomes[0].target
    bad = [outcome for outcome in outcomes if not outcome.fits]
    if len(bad) < len(outcomes):
        for outcome in bad:
            yield _note(
                kernel.path,
                f"{_described(outcome)} on {target.arch}: {_why(outcome)}",
                "kernel-config",
                kernel.line,
            )
        yield from _spills(outcomes)
        return
    compiled = [outcome for outcome in outcomes if isinstance(outcome.result, Resources)]
    first = min(compiled, key=_shared) if compiled else bad[0]
    scope = "a default target; cuda_capabilities and rocm_archs in [torch-noarch] name your own"
    yield Problem(
        path=kernel.path,
        line=kernel.line,
        message=f"{kernel.name}: none of {len(outcomes)} "
        f"configuration{'s' * (len(outcomes) != 1)} "
        f"{'fits' if compiled else 'compiles for'} {target.arch}; {_described(first)}: "
        f"{_why(first)}",
        hint=("use smaller blocks or fewer stages" if compiled else "see the compiler's words")
        + ("" if declared else f" ({target.arch} is {scope})"),
        code="kernel-shared-memory" if compiled else "kernel-compile",
    )


def _shared(outcome: pool.Outcome) -> int:
    return outcome.result.shared_memory if isinstance(outcome.result, Resources) else 0


def _spills(outcomes: tuple[pool.Outcome, ...]) -> Iterator[Problem]:
    spilling = [
        (outcome, outcome.result.spills)
        for outcome in outcomes
        if isinstance(outcome.result, Resources) and outcome.result.spills
    ]
    if spilling:
        worst, size = max(spilling, key=lambda pair: pair[1])
        yield _note(
            worst.kernel.path,
            f"{worst.kernel.name} spills registers on {worst.target.arch} in {len(spilling)} of "
            f"{len(outcomes)} configurations, at worst {size} bytes a thread: {_described(worst)}",
            "kernel-spills",
            worst.kernel.line,
        )


def _described(outcome: pool.Outcome) -> str:
    config = outcome.kernel.configs[outcome.config]
    return f"{outcome.kernel.name} with {config}" if config else outcome.kernel.name


def _why(outcome: pool.Outcome) -> str:
    if isinstance(outcome.result, Refusal):
        return outcome.result.reason
    return (
        f"asks for {outcome.result.shared_memory} bytes of shared memory, "
        f"{outcome.target.shared_memory} are allowed"
    )


def _note(
    path: str, message: str, code: str, line: int | None = None, hint: str | None = None
) -> Problem:
    return Problem(path=path, line=line, message=message, hint=hint, code=code)
