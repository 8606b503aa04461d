"""What there is to know of a kernel before it is trusted. Downloads, verifies, imports nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from . import settings, signatures
from .consents import Asked, consent_after, consent_before
from .errors import KernelHubError, MissingExtra, NoCompatibleVariant, TrustError, about
from .formats.content import content_digest
from .formats.metadata import Metadata, parse_metadata
from .formats.variant import VariantName
from .hints import Look, look, summary
from .hub_place import HubPlace, resolve_built
from .locks import LockFile, project_lock
from .places import Ready
from .policies import Rules, rules
from .reporter import SILENT, Reporter
from .resolution import requirement_of
from .signature_file import read_bundle
from .sources import Source
from .store import Store
from .verify import METADATA, hash_folder
from .ways import way_of

_NATIVE = (".so", ".dll", ".dylib", ".pyd", ".a", ".o", ".cubin", ".hsaco", ".exe")


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspected:
    """One variant of a kernel.

    Attributes:
        repo_id, commit, version, variant: which.
        publisher: its organisation or user.
        hub_trusted: whether the Hub marks the publisher as trusted; None where it was not asked.
        allowed: why it would be allowed to run here now, or why not.
        signature: what signature it carries, and whether that is one of a signer of the policies.
        locked: what the project's lock says of it.
        content: its content digest, which a lock or a policy can name.
        metadata: its metadata.
        files: size in bytes by path.
        imports: modules of other packages that it imports.
        does: what its Python seems to do, with places; hints, no proof.
        unread: files that are no Python, or not to be read as such, with the reason to look at it.
    """

    repo_id: str
    commit: str
    version: int | None
    variant: str
    publisher: str
    hub_trusted: bool | None
    allowed: str
    signature: str
    locked: str
    content: str
    metadata: Metadata
    files: Mapping[str, int]
    imports: tuple[str, ...]
    does: Mapping[str, tuple[str, ...]]
    unread: Mapping[str, str] = field(default_factory=dict)


def inspect(
    repo_id: str,
    version: int | str | None = None,
    revision: str | None = None,
    *,
    variant: str | None = None,
    source: Source | None = None,
    reporter: Reporter = SILENT,
) -> Inspected:
    """Look at a kernel without running any of it.

    Args:
        variant: which of its variants; default: the first by name. The files of noarch variants
            are mostly the same.

    Raises:
        NoCompatibleVariant: it publishes no such variant.
        IntegrityError: its bytes are not those that it lists.
        VersionNotFound, RepositoryNotFound, NotCached, HubError, StoreError: as for a load.
    """
    now = settings.current()
    requirement = requirement_of(repo_id, version, revision)
    way = way_of(now, source, reporter)
    repository = Store(now.cache, now.endpoint).repository(requirement.repo_id)
    resolved = resolve_built(requirement, repository, way, tell=False)
    place = HubPlace(repository, resolved.commit, way)
    with about(requirement.repo_id):
        name = _variant(place, requirement.repo_id, variant)
        ready = place.ready(name)
    in_force = rules(now)
    data = (ready.folder / METADATA).read_bytes()
    metadata = parse_metadata(data, METADATA)
    content = content_digest(data, metadata.digest or hash_folder(ready.folder))
    file = project_lock(now)
    pinned = _pinned(file, requirement.repo_id, resolved.commit, name)
    asked = Asked(
        repository=repository,
        commit=resolved.commit,
        argument=False,
        rules=in_force,
        locked=file is not None and file.consents and pinned == content,
        seen=place.is_seen(),
        way=way,
    )
    looks = {
        path: look((ready.folder / path).read_bytes())
        for path in ready.manifest
        if path.endswith(".py")
    }
    return Inspected(
        repo_id=requirement.repo_id,
        commit=resolved.commit,
        version=resolved.version,
        variant=name,
        publisher=requirement.repo_id.partition("/")[0],
        hub_trusted=_hub_trusted(asked),
        allowed=_allowed(asked, ready),
        signature=_signature(ready, requirement.repo_id, in_force, offline=way.connect is None),
        locked=_locked(file, requirement.repo_id, pinned, content),
        content=content,
        metadata=metadata,
        files={path: (ready.folder / path).stat().st_size for path in sorted(ready.manifest)},
        imports=tuple(sorted({module for found in looks.values() for module in found.imports})),
        does=summary(looks),
        unread=_unread(ready, looks),
    )


def _variant(place: HubPlace, repo_id: str, wanted: str | None) -> str:
    names = [name for name in place.variants() if VariantName.parse(name) is not None]
    if not names or (wanted is not None and wanted not in names):
        raise NoCompatibleVariant(
            f"{repo_id} publishes {', '.join(names) or 'no noarch variant'}"
            + (f", and not {wanted}" if wanted else ""),
            reasons={},
            hint=f"`kernelhub variants {repo_id}` shows what there is",
        )
    return wanted or names[0]


def _hub_trusted(asked: Asked) -> bool | None:
    connect = asked.way.connect
    publisher = asked.repository.repo_id.partition("/")[0]
    return None if connect is None else connect(False).is_trusted_publisher(publisher)


def _allowed(asked: Asked, ready: Ready) -> str:
    """What a load decides, before its bytes are here and after."""
    try:
        before = consent_before(asked)
        consent, _ = consent_after(asked, before, ready.folder, ready.manifest)
    except (TrustError, MissingExtra) as error:
        return f"no: {error.message}"
    return f"yes, by {consent.value}"


def _signature(ready: Ready, repo_id: str, in_force: Rules, *, offline: bool) -> str:
    try:
        bundle = read_bundle(ready.folder)
        if bundle is None:
            return "none"
        signers = in_force.signers(repo_id)
        if not signers:
            return f"{bundle.kind}, not verified: no policy names a signer for {repo_id}"
        signer = signatures.check(ready.folder, ready.manifest, signers, offline=offline)
    except KernelHubError as error:
        return f"not accepted: {error.message}"
    return f"{bundle.kind}, verified: by {signer.name!r}"


def _pinned(file: LockFile | None, repo_id: str, commit: str, variant: str) -> str | None:
    """The content digest that the project's lock pins for a variant of a commit."""
    held = file.lock.of(repo_id) if file is not None else ()
    kernel = next((kernel for kernel in held if kernel.commit == commit), None)
    return kernel.variants.get(variant) if kernel is not None else None


def _locked(file: LockFile | None, repo_id: str, pinned: str | None, content: str) -> str:
    held = file.lock.of(repo_id) if file is not None else ()
    if file is None or not held:
        return "not in a lock of this project"
    if pinned is None:
        return f"{file.path} pins {', '.join(k.commit[:12] for k in held)} instead"
    return f"{file.path} pins {'these bytes' if pinned == content else 'OTHER BYTES'}"


def _unread(ready: Ready, looks: Mapping[str, Look]) -> dict[str, str]:
    found = {path: held.fault for path, held in looks.items() if held.fault is not None}
    for path in ready.manifest:
        if path.endswith(_NATIVE):
            found[path] = "native code"
        elif path.endswith((".pth", ".pkl", ".pt", ".bin")):
            found[path] = "may run code when it is loaded"
    return dict(sorted(found.items()))
