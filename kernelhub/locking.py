"""From requirements to a lock: resolved, with what kernels need in turn, the same way each time.

What the project states of a repository holds for every use of it, also by other kernels. Kernels
that need different versions of a third may: each gets its own. What is locked already is kept, and
asked of nobody, unless it is to be upgraded or no longer fits.
"""

from __future__ import annotations

import base64
import hashlib
import tempfile
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from .errors import ConflictError, LockError, NotCached, VersionNotFound
from .formats.content import METADATA, content_digest
from .formats.digest import Digest, is_hashed
from .formats.lock import Lock, LockedKernel, sort_key
from .formats.metadata import KernelDependency, parse_metadata
from .formats.requirement import Requirement, parse_requirement
from .formats.requirements_file import Listed
from .formats.variant import VariantName
from .hub_place import HubPlace, resolve_built
from .reporter import SILENT, Reporter
from .requirements import Requirements
from .resolution import Resolved, Way
from .store import Store

UPGRADE_ALL = frozenset({"*"})


def make_lock(
    requirements: Requirements,
    store: Store,
    way: Way,
    *,
    before: Lock | None = None,
    upgrade: Collection[str] = (),
    reporter: Reporter = SILENT,
) -> Lock:
    """Resolve requirements.

    Args:
        requirements: what the project asks for.
        store: local copies; listings and metadata that were asked are kept there.
        way: how the Hub may be asked.
        before: the lock so far, whose entries are kept where they still fit.
        upgrade: repositories that are resolved anew, by what the Hub says now; `UPGRADE_ALL` for
            each.

    Raises:
        ConflictError: requirements contradict each other, or kernels need each other in a circle.
        VersionNotFound, RepositoryNotFound, HubError, NotCached: as the Hub answers.
    """
    return _Locking(requirements, store, way, before or Lock(), upgrade, reporter).run()


def mismatches(requirements: Requirements, lock: Lock) -> tuple[str, ...]:
    """How a lock differs from what the requirements ask for; empty if it matches them."""
    found: list[str] = []
    direct = {k.repo_id: k for k in lock.kernels if k.requirement is not None}
    wanted = requirements.by_repository()
    for repo_id, listed in wanted.items():
        origins = ", ".join(item.origin for item in listed)
        if repo_id not in direct:
            found.append(f"{repo_id} ({origins}) is not in the lock")
        elif str(direct[repo_id].requirement) != str(combined(listed)):
            found.append(
                f"{combined(listed)} is asked for ({origins}), and the lock was made for"
                f" {direct[repo_id].requirement}"
            )
    found += [f"{repo_id} is in the lock, and nobody asks for it" for repo_id in direct
              if repo_id not in wanted]  # fmt: skip
    for kernel in lock.kernels:
        found += _own_mismatch(kernel)
        found += [
            f"{kernel.repo_id} needs {need}, which is not in the lock"
            for need in kernel.dependencies
            if lock.find(parse_requirement(need)) is None
        ]
    return tuple(found)


def _own_mismatch(kernel: LockedKernel) -> list[str]:
    """How an entry's version, or commit, is not what its own requirement asks for."""
    asked = kernel.requirement
    if asked is None:
        return []
    if asked.is_pinned and asked.revision is not None and asked.revision != kernel.commit:
        return [f"{asked} is locked at commit {kernel.commit}, which is another"]
    if asked.specifier is None or kernel.serves(asked):
        return []
    return [f"{asked} is locked at version {kernel.version}, which does not satisfy it"]


def combined(listed: tuple[Listed, ...]) -> Requirement:
    """One requirement that asks for what all of these do.

    Raises:
        ConflictError: they name different revisions, or a revision and versions.
    """
    first, *rest = (item.requirement for item in listed)
    for other in rest:
        if other == first:
            continue
        if first.revision is not None or other.revision is not None:
            raise ConflictError(
                f"{first.repo_id} is asked for in ways that cannot both hold",
                chains=[f"{item.requirement} ({item.origin})" for item in listed],
                hint="keep one of them",
            )
        specifiers = [s for s in (first.specifier, other.specifier) if s is not None]
        joined = specifiers[0] if len(specifiers) == 1 else specifiers[0] & specifiers[1]
        first = replace(first, specifier=joined)
    return first


@dataclass(frozen=True, slots=True)
class _Step:
    """One link of the chain from the project to a kernel."""

    text: str
    repo_id: str
    commit: str


class _Locking:
    def __init__(
        self,
        requirements: Requirements,
        store: Store,
        way: Way,
        before: Lock,
        upgrade: Collection[str],
        reporter: Reporter,
    ) -> None:
        self._stated = requirements.by_repository()
        self._store = store
        self._way = way
        self._before = before
        self._upgrade = frozenset(upgrade)
        self._reporter = reporter
        self._done: dict[tuple[str, str], LockedKernel] = {}

    def run(self) -> Lock:
        self._reporter.stage("resolve", len(self._stated), "kernels")
        for repo_id, listed in self._stated.items():
            self._direct(repo_id, listed)
            self._reporter.advance()
        self._reporter.done()
        return Lock(kernels=tuple(sorted(self._done.values(), key=sort_key)))

    def _direct(self, repo_id: str, listed: tuple[Listed, ...]) -> None:
        requirement = combined(listed)
        try:
            resolved = self._resolve(requirement)
        except VersionNotFound as error:
            if len(listed) == 1:
                raise
            raise ConflictError(
                f"no version of {repo_id} satisfies all that is asked of it;"
                f" published versions: {', '.join(map(str, error.available)) or 'none'}",
                chains=[f"{item.requirement} ({item.origin})" for item in listed],
                hint="loosen one of them",
            ) from error
        origin = f"{requirement} ({', '.join(item.origin for item in listed)})"
        kernel = self._add(requirement, resolved, (), origin)
        self._done[repo_id, kernel.commit] = replace(kernel, requirement=requirement)

    def _resolve(self, requirement: Requirement) -> Resolved:
        anew = self._is_upgraded(requirement.repo_id)
        kept = None if anew else self._before.find(requirement)
        if kept is not None:
            return Resolved(commit=kept.commit, version=kept.version)
        if anew and self._way.connect is None:
            raise NotCached(
                f"offline: what {requirement} stands for now cannot be asked",
                hint="go online to upgrade it",
            )
        repository = self._store.repository(requirement.repo_id)
        return resolve_built(requirement, repository, self._way, tell=False, memory=not anew)

    def _is_upgraded(self, repo_id: str) -> bool:
        return self._upgrade == UPGRADE_ALL or repo_id in self._upgrade

    def _add(
        self, requirement: Requirement, resolved: Resolved, chain: tuple[_Step, ...], text: str
    ) -> LockedKernel:
        repo_id, commit = requirement.repo_id, resolved.commit
        _refuse_circle(chain, repo_id, commit, text)
        chain = (*chain, _Step(text, repo_id, commit))
        kernel = self._done.get((repo_id, commit)) or self._describe(repo_id, resolved)
        if kernel.version is None and resolved.version is not None:
            kernel = replace(kernel, version=resolved.version)
        self._done[repo_id, commit] = kernel
        for need in kernel.dependencies:
            self._dependency(parse_requirement(need), chain)
        return kernel

    def _dependency(self, need: Requirement, chain: tuple[_Step, ...]) -> None:
        resolved = self._resolve(need)
        self._hold_to_project(need, resolved, chain)
        self._add(need, resolved, chain, str(need))

    def _hold_to_project(
        self, need: Requirement, resolved: Resolved, chain: tuple[_Step, ...]
    ) -> None:
        version = resolved.version
        for item in self._stated.get(need.repo_id, ()):
            asked = item.requirement
            if asked.specifier is None or version is None or asked.admits(version):
                continue
            raise ConflictError(
                f"{need.repo_id}: a kernel needs what the project rules out",
                chains=[_chain(chain, str(need)), f"{asked} ({item.origin})"],
                hint=f"change the requirement for {need.repo_id}, or take another version of"
                f" {chain[-1].repo_id}",
            )

    def _describe(self, repo_id: str, resolved: Resolved) -> LockedKernel:
        """What the lock holds of a commit: kept from the lock before, else asked."""
        for kernel in self._before.of(repo_id):
            if kernel.commit == resolved.commit and kernel.variants:
                return replace(kernel, requirement=None, version=resolved.version)
        place = HubPlace(self._store.repository(repo_id), resolved.commit, self._way)
        variants: dict[str, str] = {}
        needs: set[str] = set()
        for variant in place.variants():
            if VariantName.parse(variant) is None:
                continue  # compiled builds are not loaded here
            data = place.metadata_bytes(variant)
            metadata = parse_metadata(data, f"{variant}/{METADATA}")
            _refuse_mislabelled(repo_id, resolved, variant, metadata.version)
            digest = metadata.digest or _digest(repo_id, place, variant, resolved.commit, self._way)
            variants[variant] = content_digest(data, digest)
            needs |= {needed(need) for need in metadata.kernel_depends}
        return LockedKernel(
            repo_id=repo_id,
            requirement=None,
            version=resolved.version,
            commit=resolved.commit,
            variants=dict(sorted(variants.items())),
            dependencies=tuple(sorted(needs)),
        )


def _refuse_mislabelled(repo_id: str, resolved: Resolved, variant: str, stated: int) -> None:
    """What is locked as a version states that version: a load by the lock insists on it."""
    if resolved.version not in (None, stated):
        raise LockError(
            f"{repo_id}: the Hub has {resolved.commit[:12]} as version {resolved.version}, and"
            f" {variant}/{METADATA} there states version {stated}",
            hint=f"its author has to publish it anew; until then take {repo_id}@{resolved.commit}",
        )


def needed(need: KernelDependency) -> str:
    """A kernel's dependency as a requirement: "org/k==1" or "org/k@<revision>"."""
    pin = f"=={need.version}" if need.version is not None else f"@{need.revision}"
    return f"{need.repo_id}{pin}"


def _digest(repo_id: str, place: HubPlace, variant: str, commit: str, way: Way) -> Digest:
    """SHA-256 of each file of a variant that was built before digests: the small ones are read."""
    files = {path: file for path, file in place.files(variant).items() if is_hashed(path)}
    hashes = {path: file.sha256 for path, file in files.items() if file.sha256 is not None}
    rest = {path: file for path, file in files.items() if file.sha256 is None}
    if rest:
        if way.connect is None:
            raise NotCached(f"offline, and the files of {repo_id}@{commit[:12]} are not hashed yet")
        with tempfile.TemporaryDirectory(prefix="kernelhub-") as folder:
            way.connect(False).fetch(repo_id, commit, rest.values(), Path(folder))
            hashes |= dict(_hashes(Path(folder), ((p, f.path) for p, f in rest.items())))
    encoded = {
        path: base64.b64encode(bytes.fromhex(value)).decode() for path, value in hashes.items()
    }
    return Digest(algorithm="sha256", files=encoded)


def _hashes(folder: Path, files: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    for path, inside in files:
        yield path, hashlib.sha256((folder / inside).read_bytes()).hexdigest()


def _refuse_circle(chain: tuple[_Step, ...], repo_id: str, commit: str, text: str) -> None:
    at = next((i for i, s in enumerate(chain) if (s.repo_id, s.commit) == (repo_id, commit)), None)
    if at is not None:
        raise ConflictError(
            "kernels need each other in a circle",
            chains=[_chain(chain[at:], text)],
            hint="one of their authors has to break it",
        )


def _chain(chain: tuple[_Step, ...], last: str) -> str:
    return " -> ".join([*(step.text for step in chain), last])
