"""Every kernel of a lock onto this disk, for this machine or for others, verified."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from . import signatures
from .errors import InputError, NoCompatibleVariant, NotCached
from .formats.lock import Lock, LockedKernel
from .formats.variant import BACKENDS, FRAMEWORKS, VariantName
from .hub_place import HubPlace
from .locks import hold_to_version
from .policies import Rules
from .reporter import SILENT, Reporter
from .resolution import Way
from .store import Repository, Store
from .target import detect
from .variants import Wish, choose

ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Synced:
    """One variant of a locked kernel, or why there is none.

    Attributes:
        kernel: the kernel.
        variant: its variant, None where nothing fits.
        folder: where it is now.
        fetched: whether it had to be downloaded.
        size: bytes of its files.
        reason: why nothing fits.
        unknown: whether that is only for want of metadata, offline.
        signer: whose signature was verified, where a policy asks for one.
    """

    kernel: LockedKernel
    variant: str | None
    folder: Path | None = None
    fetched: bool = False
    size: int = 0
    reason: str = ""
    unknown: bool = False
    signer: str | None = None


def sync(
    lock: Lock,
    store: Store,
    way: Way,
    rules: Rules,
    *,
    platforms: Sequence[str] = (),
    reporter: Reporter = SILENT,
) -> tuple[Synced, ...]:
    """Bring the kernels of a lock onto this disk.

    Args:
        platforms: for which machines: backends ("cuda"), variants ("torch-cuda") or "all"; none
            is this machine.

    Returns:
        One entry for each variant that was asked for, in the lock's order. A kernel that the
        project asks for and that has none has an entry without a variant; one that only others
        need has none.

    Raises:
        InputError: a platform is none.
        LockError: a kernel states another version than the lock.
        IntegrityError, NotCached, TrustError, HubError, StoreError: as for a load.
    """
    check_platforms(platforms)
    found: list[Synced] = []
    reporter.stage("fetch", len(lock.kernels), "kernels")
    for kernel in lock.kernels:
        repository = store.repository(kernel.repo_id)
        place = HubPlace(repository, kernel.commit, way, kernel.variants)
        variants, reason, unknown = _wanted(kernel, place, platforms)
        for variant in variants:
            there = repository.find(kernel.commit, variant) is not None
            ready = place.ready(variant)
            hold_to_version(kernel, place.metadata(variant))
            stored = repository.find(kernel.commit, variant)
            signer = signatures.enforce(
                kernel.repo_id,
                ready.folder,
                ready.manifest,
                rules,
                is_consent=False,
                offline=way.connect is None,
            )
            found.append(
                Synced(
                    kernel=kernel,
                    variant=variant,
                    folder=ready.folder,
                    fetched=not there,
                    size=stored.receipt.size if stored else 0,
                    signer=signer,
                )
            )
        if not variants and kernel.requirement is not None:
            found.append(Synced(kernel=kernel, variant=None, reason=reason, unknown=unknown))
        if variants and kernel.version is not None:  # which their metadata states too
            remember_version(repository, kernel.version, kernel.commit)
        reporter.advance()
    reporter.done()
    return tuple(found)


def remember_version(repository: Repository, version: int, commit: str) -> None:
    """Let loads by version find a commit where the Hub cannot be asked."""
    repository.remember(lambda memory: memory.with_known(version, commit))


def refuse_gaps(synced: Sequence[Synced]) -> None:
    """Refuse what leaves a kernel that the project asks for without a variant.

    Raises:
        NotCached: of some that cannot be known offline.
        NoCompatibleVariant: nothing fits.
    """
    if absent := sorted({item.kernel.repo_id for item in synced if item.unknown}):
        raise NotCached(
            f"offline, and not on this disk: {', '.join(absent)}",
            hint="run `kernelhub sync` once online with the same HF_ENDPOINT and KERNELHUB_CACHE,"
            " or bring a bundle (`kernelhub unbundle`)",
        )
    gaps = {item.kernel.repo_id: item.reason for item in synced if item.variant is None}
    if gaps:
        raise NoCompatibleVariant("locked kernels have nothing for this platform", reasons=gaps)


def check_platforms(platforms: Sequence[str]) -> None:
    """Raises InputError unless each is a backend, a variant, or "all"."""
    for name in platforms:
        if name != ALL and name not in BACKENDS and VariantName.parse(name) is None:
            raise InputError(
                f"{name!r} is no platform",
                hint=f"one of {', '.join((*BACKENDS, ALL))}, or a variant such as torch-cuda",
            )


def _wanted(
    kernel: LockedKernel, place: HubPlace, platforms: Sequence[str]
) -> tuple[tuple[str, ...], str, bool]:
    if not platforms:
        return _for_this_machine(kernel, place)
    names = tuple(v for v in kernel.variants if any(_serves(v, p) for p in platforms))
    return names, f"publishes {', '.join(kernel.variants) or 'nothing'}", False


def _serves(variant: str, platform: str) -> bool:
    name = VariantName.parse(variant)
    if platform == ALL or variant == platform:
        return True
    return name is not None and platform in BACKENDS and name.serves(platform)


def _for_this_machine(kernel: LockedKernel, place: HubPlace) -> tuple[tuple[str, ...], str, bool]:
    """The variant that a load would take, for each framework that is here."""
    parsed = (VariantName.parse(v) for v in kernel.variants)
    target = detect({name.framework for name in parsed if name is not None})
    taken: list[str] = []
    reasons: dict[str, str] = {}
    unknown = False
    for framework in FRAMEWORKS:
        choice = choose(kernel.variants, target, place.metadata, Wish(framework=framework))
        if choice.chosen is not None:
            taken.append(choice.chosen.variant)
        unknown |= choice.undecided
        reasons |= {v: why for v, why in choice.reasons.items() if v.startswith(framework)}
    return tuple(dict.fromkeys(taken)), "; ".join(_lines(reasons)) or "publishes no build", unknown


def _lines(reasons: dict[str, str]) -> Iterator[str]:
    for variant, reason in reasons.items():
        yield f"{variant}: {reason}"
