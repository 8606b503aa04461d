"""What there is of a kernel and what would be loaded, asked without running any of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .errors import HubError, KernelHubError, LoadError, NotCached, NotFoundError, TrustError, about
from .hub_place import HubPlace
from .prepare import frameworks_of, locate, prepare, terms_of
from .reporter import SILENT
from .resolution import requirement_of
from .sources import Source
from .store import Store
from .target import detect
from .trust import Consent, TrustArgument
from .variants import Choice, Verdict, Wish, choose


@dataclass(frozen=True, slots=True, kw_only=True)
class Availability:
    """Whether a kernel can be had here. True or false as a condition.

    Attributes:
        reason: why, in a sentence.
        trace: each published variant with the reason for or against it, as far as that was found.
        error: what `get_kernel` would raise, None if it would load.
    """

    available: bool
    reason: str
    trace: tuple[Verdict, ...] = ()
    error: KernelHubError | None = None

    def __bool__(self) -> bool:
        return self.available


def has_kernel(
    repo_id: str,
    version: int | str | None = None,
    revision: str | None = None,
    *,
    framework: str | None = None,
    backend: str | None = None,
    trust_remote_code: TrustArgument = False,
    check_arch: bool = True,
    source: Source | None = None,
) -> Availability:
    """Whether `get_kernel` with these arguments would find a kernel that runs here.

    Downloads metadata only. An ordinary no (no such kernel, nothing for this machine, publisher not
    trusted, Hub not reachable) is a false result that carries its reason, not an exception.

    Raises:
        InputError: the arguments contradict each other or do not parse.
        IntegrityError: what the Hub lists could not be stored safely.
    """
    wish = Wish(framework=framework, backend=backend, check_arch=check_arch)
    terms = terms_of(wish, trust_remote_code, source, SILENT)
    requirement = requirement_of(repo_id, version, revision)
    try:
        found = prepare(requirement, terms, chain=())
    except (NotFoundError, TrustError, HubError, LoadError) as error:
        return Availability(available=False, reason=str(error), error=error)
    verdict = found.verdict
    reason = f"{found.title}: {verdict.variant}, {verdict.reason}"
    if found.consent is Consent.SIGNATURE:
        reason += ", if a signer that the policy trusts has signed it"
    return Availability(available=True, reason=reason, trace=found.choice.trace)


def explain_variants(
    repo_id: str,
    version: int | str | None = None,
    revision: str | None = None,
    *,
    framework: str | None = None,
    backend: str | None = None,
    check_arch: bool = True,
) -> Choice:
    """The whole decision about the variants of a kernel, without running or trusting any of it.

    Raises:
        As `get_kernel`, except for NoCompatibleVariant and TrustError.
    """
    wish = Wish(framework=framework, backend=backend, check_arch=check_arch)
    terms = terms_of(wish, False, None, SILENT)
    located = locate(requirement_of(repo_id, version, revision), terms)
    place = located.place
    with about(located.title):
        published = place.variants()
        return choose(published, detect(frameworks_of(published)), place.metadata, wish)


def published_versions(repo_id: str) -> Mapping[int, str]:
    """Every version of a kernel and the commit that it stands at now, as the Hub says.

    Raises:
        RepositoryNotFound, HubAuthError, HubRateLimited, HubUnavailable: as the Hub answers.
        NotCached: offline.
    """
    requirement = requirement_of(repo_id, None, None)
    way = terms_of(Wish(), False, None, SILENT).way
    if way.connect is None:
        raise NotCached(
            f"{requirement.repo_id}: its versions cannot be asked offline",
            hint="`kernelhub cache list` shows what is on this disk",
        )
    with about(requirement.repo_id):
        return way.connect(False).versions(requirement.repo_id)


def versions_without_build(repo_id: str, versions: Mapping[int, str]) -> frozenset[int]:
    """Which of `published_versions` hold no build, so that only an exact pin takes them.

    Asks the Hub for the files of each commit that this machine does not know yet.

    Raises:
        As `published_versions`.
    """
    terms = terms_of(Wish(), False, None, SILENT)
    repository = Store(terms.settings.cache, terms.endpoint).repository(repo_id)
    places = {v: HubPlace(repository, commit, terms.way) for v, commit in versions.items()}
    return frozenset(version for version, place in places.items() if not place.variants())
