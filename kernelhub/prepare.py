"""Everything up to the decision: which commit, may it run, which variant, and what it needs.

Nothing of a kernel has been downloaded but metadata when `prepare` returns, and nothing has run.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass

from . import settings
from .errors import LoadError, NoCompatibleVariant, NotCached, NotFoundError
from .formats.metadata import KernelDependency, Metadata
from .formats.requirement import Requirement, parse_requirement
from .formats.variant import VariantName
from .places import FolderPlace, HubPlace, Place
from .reporter import Reporter
from .resolution import Way, resolve
from .settings import Settings
from .sources import Source
from .store import Store
from .target import Target, detect
from .trust import Consent, TrustArgument, check_argument, decide
from .variants import Choice, Verdict, Wish, choose

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What holds for one call of `get_kernel` and for every kernel that it depends on."""

    settings: Settings
    endpoint: str
    wish: Wish
    trust: TrustArgument
    way: Way
    reporter: Reporter


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A variant that was chosen, with those of the kernels that it depends on."""

    repo_id: str | None
    commit: str | None
    title: str
    place: Place
    consent: Consent
    target: Target
    choice: Choice
    verdict: Verdict
    metadata: Metadata
    needs: Mapping[str, Found]


def terms_of(wish: Wish, trust: TrustArgument, source: Source | None, reporter: Reporter) -> Terms:
    """The terms of one call: settings as they are now, and one deadline for all its requests."""
    check_argument(trust)
    now = settings.current()
    ends = time.monotonic() + now.timeout

    def remaining() -> float:
        return ends - time.monotonic()

    def connect(quick: bool) -> Source:
        if source is not None:
            return source
        from .sources.hub import HubSource  # the network stack, only where it is needed

        return HubSource(now.endpoint, remaining(), quick=quick, reporter=reporter)

    way = Way(connect=None if now.offline else connect, remaining=remaining)
    endpoint = now.endpoint if source is None else source.endpoint
    return Terms(
        settings=now, endpoint=endpoint, wish=wish, trust=trust, way=way, reporter=reporter
    )


def prepare(requirement: Requirement, terms: Terms, chain: tuple[str, ...]) -> Found:
    """Everything up to the decision which variant to take, for a kernel and those it needs."""
    step = str(requirement)
    if step in chain:
        circle = " -> ".join((*chain[chain.index(step) :], step))
        raise LoadError(f"kernels depend on each other in a circle: {circle}")
    place, title, commit, consent = locate(requirement, terms)
    if consent is None:
        consent = _consent(requirement.repo_id, commit, terms)
    return choose_in(
        place, title, consent, terms, requirement.repo_id, commit, chain=(*chain, step)
    )


def locate(requirement: Requirement, terms: Terms) -> tuple[Place, str, str | None, Consent | None]:
    """Where a kernel is: place, title, commit, and consent where a folder of the user's is it."""
    local = terms.settings.local_kernels.get(requirement.repo_id)
    if local is not None:
        logger.info("%s is taken from %s (LOCAL_KERNELS)", requirement.repo_id, local)
        return FolderPlace(local), f"{requirement.repo_id} ({local})", None, Consent.LOCAL
    repository = _store(terms).repository(requirement.repo_id)
    resolved = resolve(requirement, repository, terms.way)
    version = f" v{resolved.version}" if resolved.version is not None else ""
    title = f"{requirement.repo_id}{version} ({resolved.commit[:12]})"
    return HubPlace(repository, resolved.commit, terms.way), title, resolved.commit, None


def _store(terms: Terms) -> Store:
    return Store(terms.settings.cache, terms.endpoint)


def _consent(repo_id: str, commit: str | None, terms: Terms) -> Consent:
    repository = _store(terms).repository(repo_id)
    connect = terms.way.connect
    consent = decide(
        repo_id,
        argument=terms.trust,
        allowed=terms.settings.trust,
        remembered=commit in repository.remembered().trusted,
        ask_hub=None
        if connect is None
        else lambda: connect(False).is_trusted_publisher(repo_id.partition("/")[0]),
    )
    if consent is Consent.PUBLISHER and commit is not None:
        repository.remember(lambda memory: memory.with_trusted(commit))
    return consent


def choose_in(
    place: Place,
    title: str,
    consent: Consent,
    terms: Terms,
    repo_id: str | None,
    commit: str | None,
    *,
    chain: tuple[str, ...],
) -> Found:
    """Choose among the variants of a place, and prepare the kernels that the choice needs.

    Raises:
        NoCompatibleVariant: nothing fits; NotCached if that may be for want of metadata.
    """
    published = place.variants()
    target = detect(frameworks_of(published))
    choice = choose(published, target, place.metadata, terms.wish)
    verdict = choice.chosen
    if verdict is None:
        raise _nothing_fits(title, choice)
    metadata = place.metadata(verdict.variant)
    needs = {
        need.repo_id: prepare(_dependency(need), terms, chain) for need in metadata.kernel_depends
    }
    return Found(
        repo_id=repo_id,
        commit=commit,
        title=f"{title} {verdict.variant}",
        place=place,
        consent=consent,
        target=target,
        choice=choice,
        verdict=verdict,
        metadata=metadata,
        needs=needs,
    )


def frameworks_of(published: tuple[str, ...]) -> set[str]:
    """The frameworks that any of these variants is for."""
    names = (VariantName.parse(text) for text in published)
    return {name.framework for name in names if name is not None}


def _nothing_fits(title: str, choice: Choice) -> NotFoundError:
    if choice.undecided:
        reasons = "; ".join(f"{name}: {why}" for name, why in choice.reasons.items())
        return NotCached(
            f"{title}: no variant of it that runs here is on this disk, and offline none can be"
            f" fetched ({reasons})",
            hint="load it once online on a machine like this one",
        )
    if not choice.trace:
        return NoCompatibleVariant(
            f"{title}: publishes no build", reasons={}, hint="its author has to publish one"
        )
    return NoCompatibleVariant(
        f"{title}: no published variant runs on this machine", reasons=choice.reasons
    )


def _dependency(need: KernelDependency) -> Requirement:
    pin = f"=={need.version}" if need.version is not None else f"@{need.revision}"
    return parse_requirement(f"{need.repo_id}{pin}")
