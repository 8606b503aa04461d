"""Everything up to the decision: which commit, may it run, which variant, and what it needs.

Nothing of a kernel has been downloaded but metadata when `prepare` returns, and nothing has run.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace

from . import settings
from .consents import Asked, consent_before
from .errors import LoadError, NoCompatibleVariant, NotCached, NotFoundError, about
from .formats.lock import LockedKernel
from .formats.metadata import KernelDependency, Metadata
from .formats.requirement import Requirement, parse_requirement
from .formats.variant import VariantName
from .hub_place import HubPlace, resolve_built
from .locks import calling_package, find_locked, hold_to_version
from .places import FolderPlace, Place
from .policies import Rules, rules
from .reporter import Reporter
from .resolution import Resolved, Way
from .settings import Settings
from .sources import Source
from .store import Store
from .target import Target, detect
from .trust import Consent, TrustArgument, check_argument
from .variants import Choice, Verdict, Wish, choose
from .ways import way_of

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What holds for one call of `get_kernel` and for every kernel that it depends on.

    `caller` is the top-level package that asks, whose lock counts where the project's says nothing.
    """

    settings: Settings
    endpoint: str
    wish: Wish
    trust: TrustArgument
    rules: Rules
    way: Way
    reporter: Reporter
    caller: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """Where a kernel is.

    `asked` is what consent depends on, None for a folder of the user's; `locked` its entry in a
    lock, if it was found by one.
    """

    place: Place
    title: str
    asked: Asked | None = None
    locked: LockedKernel | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A variant that was chosen, with those of the kernels that it depends on.

    `consent` may be one that a signature still has to confirm (`consents.consent_after`).
    """

    located: Located
    title: str
    consent: Consent
    target: Target
    choice: Choice
    verdict: Verdict
    metadata: Metadata
    needs: Mapping[str, Found]

    @property
    def repo_id(self) -> str | None:
        """Its repository, None for a folder of the user's."""
        return self.located.asked.repository.repo_id if self.located.asked else None

    @property
    def commit(self) -> str | None:
        """Its commit, None for a folder of the user's."""
        return self.located.asked.commit if self.located.asked else None


def terms_of(wish: Wish, trust: TrustArgument, source: Source | None, reporter: Reporter) -> Terms:
    """The terms of one call: settings as they are now, and one deadline for all its requests."""
    check_argument(trust)
    now = settings.current()
    return Terms(
        settings=now,
        endpoint=now.endpoint if source is None else source.endpoint,
        wish=wish,
        trust=trust,
        rules=rules(now),
        way=way_of(now, source, reporter),
        reporter=reporter,
        caller=calling_package(),
    )


def prepare(requirement: Requirement, terms: Terms, chain: tuple[str, ...]) -> Found:
    """Everything up to the decision which variant to take, for a kernel and those it needs."""
    step = str(requirement)
    if step in chain:
        circle = " -> ".join((*chain[chain.index(step) :], step))
        raise LoadError(
            f"kernels depend on each other in a circle: {circle}",
            hint="the author of one of them has to take a kernel-depends entry out",
        )
    located = locate(requirement, terms)
    consent = consent_before(located.asked) if located.asked else Consent.LOCAL
    found = choose_in(located, consent, terms, chain=(*chain, step))
    if located.asked is None:
        _say_if_pin_is_ignored(requirement, found)
    return found


def locate(requirement: Requirement, terms: Terms) -> Located:
    """Where a kernel is: in a folder of the user's, as a lock pins it, or as the Hub says."""
    repo_id, now = requirement.repo_id, terms.settings
    local = now.local_kernels.get(repo_id)
    if local is not None:
        logger.info("%s is taken from %s (LOCAL_KERNELS)", repo_id, local)
        title = f"{repo_id} (LOCAL_KERNELS: {local})"
        return Located(place=FolderPlace(local), title=title)
    repository = Store(now.cache, terms.endpoint).repository(repo_id)
    locked = find_locked(requirement, now, terms.caller)
    if locked is not None:
        variants, pinned = locked.kernel.variants, locked.kernel
        resolved = Resolved(commit=pinned.commit, version=pinned.version)
    else:
        variants, resolved = None, resolve_built(requirement, repository, terms.way)
    version = f" v{resolved.version}" if resolved.version is not None else ""
    place = HubPlace(repository, resolved.commit, terms.way, variants)
    asked = Asked(
        repository=repository,
        commit=resolved.commit,
        argument=terms.trust,
        rules=terms.rules,
        locked=locked is not None and locked.file.consents,
        seen=place.is_seen(),
        way=terms.way,
    )
    return Located(
        place=place,
        title=f"{repo_id}{version} ({resolved.commit[:12]})",
        asked=asked,
        locked=locked.kernel if locked is not None else None,
    )


def choose_in(located: Located, consent: Consent, terms: Terms, *, chain: tuple[str, ...]) -> Found:
    """Choose among the variants of a place, and prepare the kernels that the choice needs.

    Raises:
        NoCompatibleVariant: nothing fits; NotCached if that may be for want of metadata.
        LockError: it states another version than the lock through which it was found.
    """
    place = located.place
    with about(located.title):
        published = place.variants()
        target = detect(frameworks_of(published))
        choice = choose(published, target, place.metadata, terms.wish)
        verdict = choice.chosen
        if verdict is None:
            raise _nothing_fits(located, choice, chain[-1])
        metadata = place.metadata(verdict.variant)
        if located.locked is not None:
            hold_to_version(located.locked, metadata)
    below = _terms_below(verdict, terms)
    needs = {
        need.repo_id: prepare(_dependency(need), below, chain) for need in metadata.kernel_depends
    }
    return Found(
        located=located,
        title=f"{located.title} {verdict.variant}",
        consent=consent,
        target=target,
        choice=choice,
        verdict=verdict,
        metadata=metadata,
        needs=needs,
    )


def _terms_below(verdict: Verdict, terms: Terms) -> Terms:
    """What a kernel needs is of its own framework: they pass each other tensors, or arrays."""
    name = VariantName.parse(verdict.variant)
    framework = terms.wish.framework if name is None else name.framework
    return replace(terms, wish=replace(terms.wish, framework=framework))


def frameworks_of(published: tuple[str, ...]) -> set[str]:
    """The frameworks that any of these variants is for."""
    names = (VariantName.parse(text) for text in published)
    return {name.framework for name in names if name is not None}


_told: set[tuple[str, str]] = set()


def _say_if_pin_is_ignored(requirement: Requirement, found: Found) -> None:
    """Say once that a folder of LOCAL_KERNELS is not the version or revision asked for."""
    version, key = found.metadata.version, (str(requirement), found.located.title)
    unpinned = requirement.specifier is None and requirement.revision is None
    if unpinned or requirement.admits(version) or key in _told:
        return
    _told.add(key)
    logger.warning(
        "%s is not what is loaded: %s is taken in its place, which holds version %d",
        requirement,
        found.located.title,
        version,
    )


def _nothing_fits(located: Located, choice: Choice, asked: str) -> NotFoundError:
    title = located.title
    if choice.undecided:
        reasons = "; ".join(f"{name}: {why}" for name, why in choice.reasons.items())
        return NotCached(
            f"{title}: no variant of it that runs here is on this disk, and offline none can be"
            f" fetched ({reasons})",
            hint="load it once online on a machine like this one",
        )
    if not choice.trace:
        repo_id = asked.partition("@")[0]
        hint = (
            f"builds are on the branches of versions: `kernelhub versions {repo_id}` lists them"
            if repo_id != asked
            else "take another version, or ask its author to publish this one"
        )
        return NoCompatibleVariant(f"{title}: publishes no build", reasons={}, hint=hint)
    return NoCompatibleVariant(
        f"{title}: no published variant runs on this machine",
        reasons=choice.reasons,
        hint="install what a variant needs, or ask its author for one that runs here"
        " (backend= and framework= take a variant by hand)",
    )


def _dependency(need: KernelDependency) -> Requirement:
    pin = f"=={need.version}" if need.version is not None else f"@{need.revision}"
    return parse_requirement(f"{need.repo_id}{pin}")
