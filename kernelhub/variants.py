"""Published variants x this machine -> a choice, and a reason for everything else. Pure.

A name is judged first (framework, backend), then, in order of preference and until one is accepted,
the variant's metadata (architectures, version ranges, packages). The order among what the names
allow: torch before jax (jax before torch in a process that uses jax and not torch); of one
framework the backend's own variant before a universal one, and last a GPU variant that Triton's
interpreter would run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from packaging.markers import UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from . import archs
from .errors import FormatError, InputError, NotCached
from .formats.metadata import Metadata
from .formats.variant import BACKENDS, FRAMEWORKS, UNIVERSAL, VariantName
from .target import Target

INTERPRETABLE = ("cuda", "rocm", "xpu")
"""Backends whose Triton kernels the interpreter can stand in for, in order of preference."""

_INTERPRETED_LANGUAGES = frozenset({"triton", "torch"})
_HF_PACKAGES = {"tvm-ffi": "apache-tvm-ffi", "onednn": None}
_NOT_REACHED = "not looked at: a better one was accepted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One published variant: taken or not, and why.

    `interpreted` says that Triton's interpreter is to run it in place of the GPU that it is for.
    """

    variant: str
    accepted: bool
    reason: str
    interpreted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What was decided. `trace` holds a verdict for each published variant, in published order.

    `undecided` tells that a refusal was only for want of metadata (offline), not of a fit.
    """

    chosen: Verdict | None
    trace: tuple[Verdict, ...]
    undecided: bool = False

    @property
    def reasons(self) -> dict[str, str]:
        """Variant to reason, of those that were not accepted."""
        return {v.variant: v.reason for v in self.trace if not v.accepted}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What the caller asks of the choice.

    Attributes:
        framework: "torch" or "jax"; None leaves it open.
        backend: a backend to take in place of the one that was found; None leaves it open.
        check_arch: whether the architectures that a build declares have to include this device.
    """

    framework: str | None = None
    backend: str | None = None
    check_arch: bool = True

    def __post_init__(self) -> None:
        given = ("framework", self.framework, FRAMEWORKS), ("backend", self.backend, BACKENDS)
        for name, value, legal in given:
            if value is not None and value not in legal:
                raise InputError(
                    f"{name}={value!r} is none that kernels are published for",
                    hint=f"give one of {', '.join(legal)}, or leave it out",
                )


def choose(
    published: Iterable[str], target: Target, read: Callable[[str], Metadata], wish: Wish
) -> Choice:
    """Choose a variant.

    Args:
        published: names of folders below `build/`.
        target: this machine.
        read: gives a variant's metadata; called for candidates in order until one is accepted. It
            may raise NotCached, which refuses the variant for now.
        wish: what the caller asks for.
    """
    named = [judge_name(text, target, wish) for text in sorted(published)]
    order = tuple(reversed(FRAMEWORKS)) if target.jax_first else FRAMEWORKS
    candidates = sorted((v for v in named if v.accepted), key=lambda v: _preference(v, order))
    decided: dict[str, Verdict] = {}
    undecided = False
    chosen: Verdict | None = None
    for candidate in candidates:
        if chosen is not None:
            reason = _not_reached(candidate.variant, chosen.variant)
            decided[candidate.variant] = replace(candidate, accepted=False, reason=reason)
            continue
        try:
            verdict = judge_metadata(candidate, read(candidate.variant), target, wish)
        except NotCached as error:
            undecided = True
            verdict = replace(candidate, accepted=False, reason=error.message)
        except FormatError as error:
            faults = "; ".join(map(str, error.problems))
            verdict = replace(candidate, accepted=False, reason=f"cannot be read: {faults}")
        decided[candidate.variant] = verdict
        chosen = verdict if verdict.accepted else None
    trace = tuple(decided.get(v.variant, v) for v in named)
    return Choice(chosen=chosen, trace=trace, undecided=undecided)


def judge_name(text: str, target: Target, wish: Wish) -> Verdict:
    """What the name alone allows."""
    name = VariantName.parse(text)
    if name is None:
        return _no(text, "not a noarch variant: compiled builds are not loaded here")
    if wish.framework is not None and name.framework != wish.framework:
        return _no(text, f"is for {name.framework}, and {wish.framework} was asked for")
    if name.framework not in target.backend:
        return _no(text, f"{name.framework} is not installed")
    found = target.backend[name.framework]
    backend = wish.backend or found
    if name.serves(backend):
        universal = "universal: " if name.backend == UNIVERSAL else ""
        why = ""
        if target.jax_first and name.framework == "jax" and wish.framework is None:
            why = ", before torch: this process uses jax and not torch"
        return _yes(text, f"{universal}{name.framework} on {backend}{why}")
    if wish.backend is None and _may_interpret(name, target):
        return Verdict(
            variant=text, accepted=True, interpreted=True, reason="through Triton's interpreter"
        )
    asked = "asked for" if wish.backend else "what this machine has"
    return _no(text, f"is for {name.backend}, and {backend} is {asked}")


def judge_metadata(candidate: Verdict, metadata: Metadata, target: Target, wish: Wish) -> Verdict:
    """What the metadata of a variant whose name fits says; all that is missing at once."""
    faults: list[str] = []
    declared, device = metadata.backend, target.device
    if wish.check_arch and declared.archs and device is not None and not candidate.interpreted:
        ours = wish.backend or target.backend[_framework(candidate.variant)]
        if ours == declared.type and not archs.fits(declared.type, declared.archs, device):
            faults.append(f"is for {', '.join(declared.archs)}, and {device.name} is {device.arch}")
    extension = metadata.extension
    if extension is not None:
        if candidate.interpreted and not _INTERPRETED_LANGUAGES.issuperset(extension.languages):
            faults.append(
                f"is for {declared.type}, and only Triton can be interpreted,"
                f" not {', '.join(extension.languages)}"
            )
        faults += unmet_ranges(dict(extension.requires), target)
        faults += unmet_packages(extension.dependencies, target)
    faults += unmet_packages(_hf_requirements(metadata.python_depends), target)
    if faults:
        return replace(candidate, accepted=False, reason="; ".join(faults))
    return candidate


def unmet_ranges(requires: dict[str, str], target: Target) -> list[str]:
    """The version ranges that this machine does not satisfy, as texts."""
    faults: list[str] = []
    for name, text in requires.items():
        have = target.python if name == "python" else target.versions.get(name)
        if have is None:
            faults.append(f"needs {name}{text}, which is not installed")
        elif not _within(have, text):
            faults.append(f"needs {name}{text}, and {have} is installed")
    return faults


def unmet_packages(requirements: Iterable[str], target: Target) -> list[str]:
    """The PEP 508 requirements that this machine does not satisfy, as texts."""
    faults: list[str] = []
    for text in requirements:
        try:
            requirement = Requirement(text)
            if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
                continue
        except (InvalidRequirement, UndefinedEnvironmentName):
            faults.append(f"has a dependency that cannot be read: {text!r}")
            continue
        have = target.versions.get(requirement.name)
        if have is None:
            faults.append(f"needs {text}, which is not installed")
        elif not _within(have, str(requirement.specifier)):
            faults.append(f"needs {text}, and {have} is installed")
    return faults


def _within(version: str, specifier: str) -> bool:
    try:
        return SpecifierSet(specifier).contains(Version(version), prereleases=True)
    except (InvalidSpecifier, InvalidVersion):
        return False


def _hf_requirements(names: Sequence[str]) -> tuple[str, ...]:
    """Distributions behind HF's curated names; a name without a package to check is left out."""
    packages = (_HF_PACKAGES.get(name, name) for name in names)
    return tuple(package for package in packages if package is not None)


def _may_interpret(name: VariantName, target: Target) -> bool:
    return (
        target.interpreter
        and name.framework == "torch"
        and name.backend in INTERPRETABLE
        and target.backend.get("torch") == "cpu"
    )


def _not_reached(variant: str, chosen: str) -> str:
    mine, theirs = _framework(variant), _framework(chosen)
    if mine == theirs:
        return _NOT_REACHED
    return f"not looked at: {theirs} comes first here; framework={mine!r} takes this one"


def _preference(verdict: Verdict, order: Sequence[str]) -> tuple[int, bool, bool, int]:
    name = VariantName.parse(verdict.variant)
    assert name is not None  # noqa: S101 - only parsed names are candidates
    return (
        order.index(name.framework),
        verdict.interpreted,
        name.backend == UNIVERSAL,
        INTERPRETABLE.index(name.backend) if verdict.interpreted else 0,
    )


def _framework(variant: str) -> str:
    return variant.partition("-")[0]


def _yes(variant: str, reason: str) -> Verdict:
    return Verdict(variant=variant, accepted=True, reason=reason)


def _no(variant: str, reason: str) -> Verdict:
    return Verdict(variant=variant, accepted=False, reason=reason)
